"""What pages of the console take beside the queries that they need, with a million runs stored.

A page is a whole request through Django, from the session to the last byte of HTML. The admin is not among the apps of
the other benchmarks, so this is measured in a process of its own: `python -m benchmarks.console` prints JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.comparison import Comparison
from benchmarks.processes import ROOT

STEPS = 2_000
EVENTS = 10_000
_GOES = 9
_SETTINGS = "benchmarks.project.settings_console"
_LIST = "/admin/pikku_workflows/workflowrun/"


def of_console(runs: int) -> Iterator[Comparison]:
    """Comparisons of the pages with the queries behind them, on the database that has `runs` settled runs. Raises
    `RuntimeError` with the end of the log if they could not be measured."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.console"],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": _SETTINGS},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the console could not be measured: {done.stderr[-600:]}")
    for found in json.loads(done.stdout.splitlines()[-1]):
        what = f"{found['title']} ({found['queries']} queries, {found['kilobytes']} kB)"
        yield Comparison(
            title=f"console, {runs:,} runs, {what}: in its queries, in all",
            unit="ms",
            first=found["raw"],
            second=found["page"],
        )


def main() -> None:
    """Measure on the benchmarks' PostgreSQL database, and print what was found."""
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", verbosity=0, interactive=False)
    User.objects.filter(username="bench").delete()
    client = Client()
    client.force_login(User.objects.create_superuser("bench"))
    print(json.dumps([_measured(client, title, url) for title, url in _pages().items()]))


def _pages() -> dict[str, str]:
    from pikku_storage.workflows.models import WorkflowRun

    deep = WorkflowRun.objects.filter(status="completed").order_by("created_at", "id")[1000]
    before = f"{deep.created_at.isoformat().replace('+', '%2B')}~{deep.pk}"
    return {
        "first page of the list": _LIST,
        "the list's last page but some": f"{_LIST}?before={before}",
        "search by the beginning of an id": f"{_LIST}?q={deep.pk[:-2]}",
        f"page of a run of {EVENTS:,} events": f"{_LIST}{_long_run()}/change/",
    }


def _measured(client: Any, title: str, url: str) -> dict[str, Any]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    response = client.get(url)
    if response.status_code != 200:
        raise RuntimeError(f"{url} answers {response.status_code}")
    with CaptureQueriesContext(connection) as captured:
        client.get(url)
    statements = [query["sql"] for query in captured.captured_queries]
    return {
        "title": title,
        "queries": len(statements),
        "kilobytes": round(len(response.content) / 1000),
        "raw": _milliseconds(lambda: _carried_out(statements)),
        "page": _milliseconds(lambda: client.get(url)),
    }


def _carried_out(statements: list[str]) -> None:
    """The same statements with their rows fetched, and nothing made of them."""
    from django.db import connection

    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            cursor.fetchall()


def _milliseconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_GOES):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1000


def _long_run() -> str:
    """A run whose steps fail once each and then succeed."""
    from datetime import timedelta

    from django.utils import timezone

    from pikku_storage.ids import new_id
    from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory

    run_id, began = new_id(), timezone.now() - timedelta(hours=1)
    WorkflowRun.objects.bulk_create(
        [WorkflowRun(id=run_id, workflow="chain", status="completed", wire={}, created_at=began, updated_at=began)]
    )
    steps, attempts = [], []
    for index in range(STEPS):
        at = began + timedelta(seconds=index)
        step = WorkflowStep(
            id=new_id(),
            run_id=run_id,
            step_name=f"step {index}",
            rpc_name="add_one",
            status="succeeded",
            current_attempt=2,
            created_at=at,
            updated_at=at + timedelta(milliseconds=900),
        )
        steps.append(step)
        for number, status in enumerate(("failed", "succeeded"), start=1):
            begun = at + timedelta(milliseconds=400 * number)
            ended = {f"{status}_at": begun + timedelta(milliseconds=300)}
            attempts.append(
                WorkflowStepHistory(
                    id=WorkflowStepHistory.id_of(step.pk, number),
                    step_id=step.pk,
                    attempt=number,
                    status=status,
                    created_at=begun,
                    running_at=begun,
                    **ended,
                )
            )
            if number == 1:
                attempts[-1].scheduled_at = begun
    WorkflowStep.objects.bulk_create(steps, batch_size=500)
    WorkflowStepHistory._default_manager.bulk_create(attempts, batch_size=500)
    return run_id


if __name__ == "__main__":
    main()
