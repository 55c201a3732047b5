"""The admin classes of secrets and credentials."""

from console.secrets.admin import credentials, secrets  # noqa: F401 - they register themselves
