"""The admin classes of scopes, roles and grants."""

from console.access.admin import grants, roles, scopes  # noqa: F401 - they register themselves
