"""The admin classes of deployments."""

from console.deployments.admin import deployments  # noqa: F401 - it registers itself
