"""The admin classes of webhooks."""

from console.webhooks.admin import deliveries  # noqa: F401 - it registers itself
