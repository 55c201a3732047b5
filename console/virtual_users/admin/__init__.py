"""The admin classes of virtual users."""

from console.virtual_users.admin import runs  # noqa: F401 - it registers itself
