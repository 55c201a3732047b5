"""The admin classes of agents, one module for each page."""

from console.agents.admin import approvals, runs, threads  # noqa: F401 - they register themselves
