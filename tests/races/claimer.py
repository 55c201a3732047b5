"""A process of its own that claims steps: `python -m tests.races.claimer RUN_ID < "go"`; prints the names it won, as
JSON."""

import json
import random
import sys

import django

from tests.races.together import wait_for_the_word


def claim_all(run_id: str, names: list[str]) -> list[str]:
    """Claim the steps in an order of this caller's own; the names it won."""
    from pikku_storage.workflows.service import WorkflowService

    service = WorkflowService()
    random.shuffle(names)
    return [name for name in names if service.claim_step(run_id, name) is not None]


def main() -> None:
    """Say that this process is ready, wait for the word, then claim."""
    django.setup()
    from pikku_storage.workflows.service import WorkflowService

    run_id = sys.argv[1]
    names = [step.step_name for step in WorkflowService().list_step_states(run_id)]
    wait_for_the_word()
    json.dump(claim_all(run_id, names), sys.stdout)


if __name__ == "__main__":
    main()
