"""A process of its own that decides approvals: `python -m tests.races.approver NAME CALL_ID… < "go"`; prints the calls
that it decided, as JSON."""

import json
import random
import sys

import django

from tests.races.together import wait_for_the_word


def approve_all(name: str, call_ids: list[str]) -> list[str]:
    """Approve each call in this name, in an order of this caller's own; the calls that it decided."""
    from pikku_storage.agents.service import AgentStorageService

    storage = AgentStorageService()
    random.shuffle(call_ids)
    return [call_id for call_id in call_ids if storage.resolve_approval(call_id, "approved", by=name)]


def main() -> None:
    """Say that this process is ready, wait for the word, then decide."""
    django.setup()
    wait_for_the_word()
    json.dump(approve_all(sys.argv[1], sys.argv[2:]), sys.stdout)


if __name__ == "__main__":
    main()
