"""Workflows: runs, steps, versions, schedules and controls."""
