"""One database beside the other: `python -m benchmarks.engines URL URL …`, each as in DATABASE_URL.

Each database has a process of its own, which makes a database for the run and drops it at the end. They take turns,
round by round, and what is shown is the median of the rounds, and of the ratios to the first one within each round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import IO, Any
from urllib.parse import urlsplit

COMMITS = 200
STEPS = 100
RUNS = 50
ROWS = 2_000
MEASURED = {
    "raw commit": "an UPDATE of one row by the ORM, its own transaction",
    "step": f"a step of a run of {STEPS}, inline",
    "run": "a run of one step, inline, from asking for it to its end",
    "list": f"a page of 50 runs among {ROWS:,}, the newest first",
    "relay": "a round of the relay with nothing due",
}


def main() -> None:
    """Measure, and print a table in Markdown: milliseconds, and the ratio to the first database."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", nargs="+", metavar="URL")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        _serve()
        return
    children = [_Child(url) for url in given.urls]
    try:
        rounds = [[child.ask("round") for child in _turned(children, number)] for number in range(given.rounds)]
        figures = [_unturned(figures, number) for number, figures in enumerate(rounds)]
    finally:
        for child in children:
            child.end()
    print("| milliseconds | " + " | ".join(child.name for child in children) + " |")
    print("| --- |" + " ---: |" * len(children))
    for name, meaning in MEASURED.items():
        cells = []
        for place in range(len(children)):
            median = statistics.median(figure[place][name] for figure in figures)
            ratio = statistics.median(figure[place][name] / figure[0][name] for figure in figures)
            cells.append(f"{median:.2f}" + (f" ({ratio:.1f})" if place else ""))
        print(f"| {meaning} | " + " | ".join(cells) + " |")
    print(f"\nLoad average {os.getloadavg()[0]:.1f}; medians of {given.rounds} rounds.")


def _turned(children: list[_Child], number: int) -> list[_Child]:
    """Another one begins each time."""
    first = number % len(children)
    return [*children[first:], *children[:first]]


def _unturned(figures: list[Any], number: int) -> list[Any]:
    first = -number % len(figures)
    return [*figures[first:], *figures[:first]]


class _Child:
    """The process of one database."""

    def __init__(self, url: str) -> None:
        self.name = urlsplit(url).scheme
        environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "example_project.settings"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engines", "--child", url],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ask("ready")

    def ask(self, what: str) -> Any:
        """Its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process for {self.name} is gone")
        return json.loads(line)

    def end(self) -> None:
        """Wait until it has dropped its database."""
        self.ask("end")
        self._process.communicate()


def _serve() -> None:
    import django
    from django.conf import settings

    # What Django and the example project say must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    settings.DEBUG = False
    for database in settings.DATABASES.values():
        is_file = database["ENGINE"] == "django.db.backends.sqlite3"
        name = f"bench_engines_{os.getpid()}"
        database["TEST"] = {"NAME": f"{tempfile.gettempdir()}/{name}.sqlite3" if is_file else name}
    django.setup()
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        _fill()
        _answer(answers)
    finally:
        connection.creation.destroy_test_db("none", verbosity=0)


def _answer(answers: IO[str]) -> None:
    for line in sys.stdin:
        answers.write(json.dumps(_round() if line.strip() == "round" else None) + "\n")
        answers.flush()
        if line.strip() == "end":
            return


def _fill() -> None:
    from datetime import UTC, datetime, timedelta

    from pikku_storage.db.operations import InsertMany
    from pikku_storage.db.twins import rows_on
    from pikku_storage.workflows.models import WorkflowRun

    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows: list[dict[str, Any]] = []
    for number in range(ROWS):
        at = start + timedelta(seconds=number)
        run = {"id": f"{number:08}", "workflow": f"w{number % 10}", "status": "completed", "input": {"n": number}}
        rows.append({**run, "created_at": at, "updated_at": at})
    for first in range(0, ROWS, 500):
        rows_on(WorkflowRun, "default").insert(InsertMany(WorkflowRun, {}, rows[first : first + 500]))


def _round() -> dict[str, float]:
    from benchmarks.project.workflows import chain
    from pikku_storage.workflows.models import WorkflowRun
    from pikku_storage.workflows.runs import WorkflowRunService
    from pikku_storage.workflows.service import WorkflowService

    first = WorkflowRun.objects.filter(pk="00000000")
    return {
        "raw commit": _timed(COMMITS, lambda: first.update(redrives=1)),
        "step": _timed(1, lambda: chain.run({"steps": STEPS})) / STEPS,
        "run": _timed(RUNS, lambda: chain.run({"steps": 1})),
        "list": _timed(20, lambda: WorkflowRunService().list_runs(limit=50)),
        "relay": _timed(20, lambda: WorkflowService().relay()),
    }


def _timed(times: int, call: Any) -> float:
    """Milliseconds of one call."""
    begun = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begun) * 1000 / times


if __name__ == "__main__":
    main()
