"""Addresses of the console, for tests."""

from __future__ import annotations

from django.contrib.admin.utils import quote
from django.urls import reverse

RUNS = "admin:pikku_workflows_workflowrun"


def url_of(run_id: str, view: str = "change", *more: str) -> str:
    """An address of a run: its page, or what the page loads."""
    return reverse(f"{RUNS}_{view}", args=[quote(run_id), *map(quote, more)])


def list_url(model: str = "workflowrun") -> str:
    """The address of a list."""
    return reverse(f"admin:pikku_workflows_{model}_changelist")
