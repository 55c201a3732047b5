"""The admin classes of channels."""

from console.channels.admin import channels, subscriptions  # noqa: F401 - they register themselves
