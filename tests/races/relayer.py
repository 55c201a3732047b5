"""A process of its own that sees to schedules once: `python -m tests.races.relayer < "go"`; prints the ids of the runs
that it started, as JSON."""

import json
import sys

import django

from tests.races.together import wait_for_the_word


def main() -> None:
    """Say that this process is ready, wait for the word, then look for what is due."""
    django.setup()
    from pikku_storage.db import engine
    from pikku_storage.workflows.engine.runtime import Runtime
    from pikku_storage.workflows.schedules.firing import relay_schedules

    runtime = Runtime()
    engine(runtime.using).now()
    wait_for_the_word()
    json.dump(relay_schedules(runtime).driven, sys.stdout)


if __name__ == "__main__":
    main()
