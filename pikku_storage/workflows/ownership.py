"""Who may read a run. Pure functions, for every place that shows one to somebody."""

from __future__ import annotations

from typing import Protocol

from pikku_storage.exceptions import WorkflowRunForbiddenError


class Owned(Protocol):
    """What belongs to somebody: a run, or what was read of one."""

    @property
    def owner_id(self) -> str | None:
        """The user's id; `None` if there is no owner."""


def assert_run_owner(run: Owned, user_id: str | None) -> None:
    """Raise `WorkflowRunForbiddenError` unless the run belongs to that user (contract services.md §1.9).

    A run without an owner, as a schedule or a trigger starts it, belongs to nobody in particular: what reaches it is
    then a matter of the place that asks. `user_id` is `None` for somebody who is not signed in.
    """
    if run.owner_id is not None and run.owner_id != user_id:
        raise WorkflowRunForbiddenError
