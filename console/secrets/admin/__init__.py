"""The admin classes of secrets and credentials."""
