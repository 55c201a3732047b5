"""What a caller may reach: workflows that are served, and runs of theirs. Whatever is refused looks as if it was not
there."""

from __future__ import annotations

from typing import Any

from pikku_storage.access.ownership import Owned, assert_run_owner
from pikku_storage.exceptions import ForbiddenError, PayloadError, WorkflowRunForbiddenError
from pikku_storage.json import to_text
from pikku_storage.workflows.definitions import BaseWorkflow
from pikku_storage.workflows.http.errors import NoSuchRunError, NotServedError
from pikku_storage.workflows.records import Run
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService


def served_workflow(name: str) -> BaseWorkflow:
    """The workflow of that name, if it is served over HTTP; raises `NotServedError`."""
    definition = registry.workflows.get(name)
    if definition is None or not definition.http:
        raise NotServedError(name)
    return definition


def check_may_start(definition: BaseWorkflow, user: Any) -> None:
    """Raise `ForbiddenError` unless the user has the permission that the workflow asks for."""
    if isinstance(definition.http, str) and not user.has_perm(definition.http):
        raise ForbiddenError(f"You may not start {definition.name}")


def run_of(service: WorkflowService, workflow: str, run_id: str) -> Run:
    """A run of that workflow, whoever it belongs to; raises `NoSuchRunError`. One read."""
    try:
        run = service.get_run(to_text(run_id, root="$run_id"))
    except PayloadError:
        # No database holds such an id.
        run = None
    if run is None or run.workflow != workflow:
        raise NoSuchRunError(run_id)
    return run


def own_run(service: WorkflowService, workflow: str, run_id: str, user_id: str) -> Run:
    """As `run_of`, for a run that this user may read: of somebody else's, the same is said as of none."""
    run = run_of(service, workflow, run_id)
    if not may_read(run, user_id):
        raise NoSuchRunError(run_id)
    return run


def may_read(run: Owned, user_id: str) -> bool:
    """Whether the run is this user's, or nobody's."""
    try:
        assert_run_owner(run, user_id)
    except WorkflowRunForbiddenError:
        return False
    return True
