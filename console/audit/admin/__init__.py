"""The admin classes of the audit trail."""

from console.audit.admin import entries  # noqa: F401 - it registers itself
