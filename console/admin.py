"""The console's pages in the Django admin. Django imports this module when it looks for admin classes."""

from console.workflows.admin.controls import ControlAdmin
from console.workflows.admin.runs import RunAdmin
from console.workflows.admin.schedules import ScheduleAdmin
from console.workflows.admin.steps import AttemptAdmin, StepAdmin
from console.workflows.admin.versions import VersionAdmin

__all__ = ["AttemptAdmin", "ControlAdmin", "RunAdmin", "ScheduleAdmin", "StepAdmin", "VersionAdmin"]
