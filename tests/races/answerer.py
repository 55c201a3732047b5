"""A process of its own that answers approvals: `python -m tests.races.answerer NAME RUN_ID… < "go"`; prints the runs
whose answer it gave, as JSON."""

import json
import random
import sys
from typing import Any

import django
from django.test.utils import override_settings

from tests.races.together import wait_for_the_word


class Nowhere:
    """A dispatcher whose messages all get lost: the test drives the runs."""

    PATH = "tests.races.answerer.Nowhere"

    def send(self, messages: Any) -> None:
        """Lose them."""


def answer_all(name: str, run_ids: list[str]) -> list[str]:
    """Answer each run's approval with this name, in an order of this caller's own; the runs that took the answer."""
    from pikku_storage.exceptions import WorkflowApprovalResolvedError
    from pikku_storage.workflows.service import WorkflowService

    service = WorkflowService()
    random.shuffle(run_ids)
    taken = []
    for run_id in run_ids:
        try:
            service.approve_step(run_id, "release", name, by=name)
        except WorkflowApprovalResolvedError:
            continue
        taken.append(run_id)
    return taken


def main() -> None:
    """Say that this process is ready, wait for the word, then answer."""
    django.setup()
    name, *run_ids = sys.argv[1:]
    wait_for_the_word()
    with override_settings(PIKKU_STORAGE={"DISPATCHER": Nowhere.PATH}):
        json.dump(answer_all(name, run_ids), sys.stdout)


if __name__ == "__main__":
    main()
