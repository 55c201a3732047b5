"""Runs and schedules of virtual users: personas that use a service and report what they find."""
