"""The console's pages in the Django admin. Django imports this package when it looks for admin classes."""

from console.admin.controls import ControlAdmin
from console.admin.runs import RunAdmin
from console.admin.schedules import ScheduleAdmin
from console.admin.steps import AttemptAdmin, StepAdmin
from console.admin.versions import VersionAdmin

__all__ = ["AttemptAdmin", "ControlAdmin", "RunAdmin", "ScheduleAdmin", "StepAdmin", "VersionAdmin"]
