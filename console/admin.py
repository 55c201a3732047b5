"""The console's pages in the Django admin. Django imports this module when it looks for admin classes."""

from console.access.admin.grants import GrantAdmin
from console.access.admin.roles import RoleAdmin
from console.access.admin.scopes import ScopeAdmin
from console.secrets.admin.credentials import CredentialAdmin
from console.secrets.admin.secrets import SecretAdmin
from console.workflows.admin.controls import ControlAdmin
from console.workflows.admin.runs import RunAdmin
from console.workflows.admin.schedules import ScheduleAdmin
from console.workflows.admin.steps import AttemptAdmin, StepAdmin
from console.workflows.admin.versions import VersionAdmin

__all__ = [
    "AttemptAdmin",
    "ControlAdmin",
    "CredentialAdmin",
    "GrantAdmin",
    "RoleAdmin",
    "RunAdmin",
    "ScheduleAdmin",
    "ScopeAdmin",
    "SecretAdmin",
    "StepAdmin",
    "VersionAdmin",
]
