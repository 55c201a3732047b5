"""The console's pages in the Django admin. Django imports this module when it looks for admin classes."""

from console.agents.admin.approvals import ApprovalAdmin
from console.agents.admin.runs import AgentRunAdmin
from console.agents.admin.threads import ThreadAdmin
from console.workflows.admin.controls import ControlAdmin
from console.workflows.admin.runs import RunAdmin
from console.workflows.admin.schedules import ScheduleAdmin
from console.workflows.admin.steps import AttemptAdmin, StepAdmin
from console.workflows.admin.versions import VersionAdmin

__all__ = [
    "AgentRunAdmin",
    "ApprovalAdmin",
    "AttemptAdmin",
    "ControlAdmin",
    "RunAdmin",
    "ScheduleAdmin",
    "StepAdmin",
    "ThreadAdmin",
    "VersionAdmin",
]
