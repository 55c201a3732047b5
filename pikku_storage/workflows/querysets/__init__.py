"""Every state change of the engine's rows, each one guarded write that answers who won.

A method returns `True` to the one caller whose WHERE still held; whoever gets `False` was too late and does nothing.
Statuses come from `statuses.py`; what must happen together goes to the database's engine as one list of operations.
"""

from pikku_storage.workflows.querysets.answers import AnswerQuerySet
from pikku_storage.workflows.querysets.base import LIVE, TERMINAL, Claim, NewStep
from pikku_storage.workflows.querysets.controls import ControlQuerySet
from pikku_storage.workflows.querysets.rates import RateQuerySet
from pikku_storage.workflows.querysets.runs import WIRE_TYPE_LENGTH, RunQuerySet, with_wire_type
from pikku_storage.workflows.querysets.schedules import ScheduleQuerySet
from pikku_storage.workflows.querysets.slots import SlotQuerySet
from pikku_storage.workflows.querysets.steps import StepQuerySet
from pikku_storage.workflows.querysets.versions import VersionQuerySet

__all__ = [
    "LIVE",
    "TERMINAL",
    "WIRE_TYPE_LENGTH",
    "AnswerQuerySet",
    "Claim",
    "ControlQuerySet",
    "NewStep",
    "RateQuerySet",
    "RunQuerySet",
    "ScheduleQuerySet",
    "SlotQuerySet",
    "StepQuerySet",
    "VersionQuerySet",
    "with_wire_type",
]
