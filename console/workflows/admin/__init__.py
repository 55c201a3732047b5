"""The admin classes of the workflows."""

from console.workflows.admin import controls, runs, schedules, steps, versions  # noqa: F401 - they register themselves
