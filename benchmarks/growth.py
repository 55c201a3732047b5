"""What grows when much is stored, and what a worker weighs. Each figure stands beside one of the same minutes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from benchmarks.agents import MANY, MANY_QUICKLY, of_agents
from benchmarks.comparison import Comparison
from benchmarks.console import of_console
from benchmarks.django_project import prepare_database
from benchmarks.environment import Environment
from benchmarks.memory import weigh
from benchmarks.scenarios import CHAIN_100, COMMITS
from benchmarks.secrets import of_secrets
from benchmarks.systems.pikku import PikkuInlinePostgresql
from benchmarks.systems.raw import RawDjangoPostgresql

LONG_RUN = 10_000
MANY_RUNS = 1_000_000
_WINDOW = 500
"""Steps that one figure of a run is the median of."""
_GOES = 15
Say = Callable[[str], None]


def compare(environment: Environment, say: Say, *, quick: bool = False) -> Iterator[Comparison]:
    """All comparisons, one after the other: some minutes. Raises `MissingError` without a server."""
    for alias in ("sqlite", "default"):
        say(f"a run of {LONG_RUN:,} steps ({alias})")
        yield _of_steps(environment, alias)
    yield from _of_runs(environment, say)
    for alias in ("sqlite", "default"):
        yield from of_secrets(environment, alias, say)
    yield from compare_agents(environment, say, quick=quick)
    say("weighing workers")
    yield weigh(environment)


def compare_agents(environment: Environment, say: Say, *, quick: bool) -> Iterator[Comparison]:
    """Only those of agents; some seconds if it is to be quick."""
    for alias in ("sqlite", "default"):
        yield from of_agents(environment, alias, say, many=MANY_QUICKLY if quick else MANY)


def _of_steps(environment: Environment, alias: str) -> Comparison:
    prepare_database(environment, alias)
    from benchmarks.project.workflows import stamped_chain, stamps

    engine = "PostgreSQL" if alias == "default" else "SQLite"
    stamped_chain.run({"steps": LONG_RUN}, using=alias)
    late = _steps(stamps)
    # The beginnings of other runs, because the machine is not what it was when the long one began.
    early: list[float] = []
    while len(early) < len(late):
        stamped_chain.run({"steps": 20}, using=alias)
        early += _steps(stamps[9:])
    return Comparison(
        title=f"a step inline, {engine}: from the 10th to the 20th of a run, to the {LONG_RUN:,}th",
        unit="ms",
        first=statistics.median(early),
        second=statistics.median(late),
        goal=1.2,
    )


def _steps(stamps: list[float]) -> list[float]:
    """Milliseconds of the last steps, at most `_WINDOW`."""
    return [(after - before) * 1000 for before, after in pairwise(stamps[-_WINDOW - 1 :])]


def _of_runs(environment: Environment, say: Say) -> Iterator[Comparison]:
    prepare_database(environment, "default")
    from django.db import connections
    from django.test.utils import CaptureQueriesContext

    from pikku_storage.workflows.service import WorkflowService

    connection = connections["default"]
    raw, ours = RawDjangoPostgresql(environment), PikkuInlinePostgresql(environment)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE workflow_runs, workflow_step, workflow_step_history")
        cursor.execute("DROP TABLE IF EXISTS bench_raw")
    raw.setup()
    relay = WorkflowService().relay
    empty, empty_relay = _step_by_commits(raw, ours), _milliseconds(relay)
    say(f"storing {MANY_RUNS:,} settled runs")
    _store_runs(connection)
    say(f"a step and the relay beside {MANY_RUNS:,} runs")
    full, full_relay = _step_by_commits(raw, ours), _milliseconds(relay)
    yield Comparison(
        title=f"a step inline, PostgreSQL: empty tables, {MANY_RUNS:,} runs",
        unit="ms",
        first=empty[0],
        second=full[0],
        goal=1.5,
        # In raw commits: between the two lie minutes.
        ratio=full[1] / empty[1],
    )
    with CaptureQueriesContext(connection) as captured:
        relay()
    yield Comparison(
        title=f"a round of the relay, nothing due ({len(captured)} statements): empty tables, {MANY_RUNS:,} runs",
        unit="ms",
        first=empty_relay,
        second=full_relay,
    )
    say(f"pages of the console beside {MANY_RUNS:,} runs")
    yield from of_console(MANY_RUNS)


def _step_by_commits(raw: RawDjangoPostgresql, ours: PikkuInlinePostgresql) -> tuple[float, float]:
    """A step in ms, and in raw commits of the same moment."""
    ours.run(CHAIN_100)
    steps, ratios = [], []
    for _ in range(_GOES):
        commit = raw.run(COMMITS) / COMMITS.steps
        steps.append(ours.run(CHAIN_100) / CHAIN_100.steps)
        ratios.append(steps[-1] / commit)
    return statistics.median(steps) * 1000, statistics.median(ratios)


def _milliseconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(_GOES):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1000


def _store_runs(connection: Any) -> None:
    """Completed runs of one step each, as if they had happened over a year."""
    at = "now() - number * interval '30 seconds'"
    numbers = f"FROM generate_series(1, {MANY_RUNS}) AS number"
    identity = "lpad(number::text, 36, '0')"
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
        cursor.execute(
            "INSERT INTO workflow_runs (workflow_run_id, workflow, status, input, output, state, wire, created_at,"
            f" updated_at) SELECT {identity}, 'chain', 'completed', '{{\"steps\": 1}}', '1', '{{}}', '{{}}', {at}, {at}"
            f" {numbers}"
        )
        cursor.execute(
            "INSERT INTO workflow_step (workflow_step_id, workflow_run_id, step_name, rpc_name, data, status, result,"
            f" current_attempt, max_attempts, created_at, updated_at) SELECT {identity}, {identity}, 'step 0',"
            f" 'add_one', '{{\"number\": 0}}', 'succeeded', '1', 1, 6, {at}, {at} {numbers}"
        )
        cursor.execute(
            "INSERT INTO workflow_step_history (history_id, workflow_step_id, attempt, status, result, created_at,"
            f" running_at, succeeded_at) SELECT {identity}, {identity}, 1, 'succeeded', '1', {at}, {at}, {at} {numbers}"
        )
        cursor.execute("SET synchronous_commit = on")
        # What autovacuum does within its first minute.
        for table in ("workflow_runs", "workflow_step", "workflow_step_history"):
            cursor.execute(f"VACUUM ANALYZE {table}")
