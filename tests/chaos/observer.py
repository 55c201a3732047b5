"""Starts orders, watches them while others treat the workers badly, and says what came of them.

A process of its own (`python -m tests.chaos.observer --help`), because the database that it looks at may be one that
its test has no connection to. It bears a database and a broker that go away. Each line that it writes is a JSON object:
`{"settled": n}` as it goes, and at last, after a line on its standard input, the report.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from typing import Any, TypeVar

import django

django.setup()

from django.core.management import call_command  # noqa: E402 - Django comes first
from django.db import Error as DatabaseError  # noqa: E402
from django.db import connections  # noqa: E402

from pikku_storage.ids import invocation_id  # noqa: E402
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory  # noqa: E402
from pikku_storage.workflows.service import WorkflowService  # noqa: E402
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES  # noqa: E402
from tests.chaos.ledger.models import Account, Call, Transfer  # noqa: E402
from tests.chaos.workflows import (  # noqa: E402
    ACCOUNTS,
    expected_balance,
    expected_end,
    expected_steps,
    order,
)
from tests.integration import app  # noqa: E402

__all__ = ["app"]

T = TypeVar("T")


class Observer:
    """Watches the orders from 0 to `count`."""

    def __init__(self, count: int, most_open: int, width: int, seconds: float) -> None:
        self.count = count
        self.most_open = most_open
        self.width = width
        self.seconds = seconds
        self.ids: list[str] = []
        self.ends: dict[str, tuple[Any, ...]] = {}
        """Status, output and error of each run, as it was first seen at its end."""
        self.changed: list[str] = []
        self.wrong: dict[str, None] = {}
        """The runs that there is something to say about."""

    def open_accounts(self) -> None:
        """Before the first order."""
        for name in ACCOUNTS:
            Account._default_manager.get_or_create(pk=name)

    def place(self) -> None:
        """Place orders, as many as may be open at once."""
        while len(self.ids) < self.count and len(self.ids) - len(self.ends) < self.most_open:
            self.ids.append(steadily(partial(self._place, len(self.ids))))

    def _place(self, number: int) -> str:
        data = {"number": number, "width": self.width, "seconds": self.seconds}
        return order.start(data, idempotency_key=f"order {number}").id

    def look(self) -> int:
        """How many have ended. None may ever change again."""
        terminal = sorted(status.value for status in TERMINAL_RUN_STATUSES)
        now = {
            run_id: tuple(end)
            for run_id, *end in WorkflowRun.objects.filter(status__in=terminal).values_list(
                "pk", "status", "output", "error"
            )
        }
        for run_id, end in self.ends.items():
            if now.get(run_id) != end:
                self.changed.append(self._about(run_id, f"had ended with {end}, and then it was {now.get(run_id)}"))
        self.ends |= now
        return len(self.ends)

    def problems(self) -> Iterator[str]:
        """Everything that is not as it must be."""
        yield from self._runs()
        yield from self._steps()
        yield from self._invariants()
        yield from self._books()

    def _about(self, run_id: str, text: str) -> str:
        self.wrong[run_id] = None
        return f"run {run_id}: {text}"

    def _runs(self) -> Iterator[str]:
        now = {run.pk: (run.status, run.output, run.error) for run in WorkflowRun.objects.all()}
        if len(now) != self.count:
            yield f"{len(now)} runs instead of {self.count}"
        for number, run_id in enumerate(self.ids):
            status, output, error = now[run_id]
            if (status, output) != expected_end(number, self.width):
                yield self._about(run_id, f"order {number} is {status} with {output!r}: {error}")

    def _steps(self) -> Iterator[str]:
        found: dict[str, dict[str, str]] = {run_id: {} for run_id in self.ids}
        for run_id, name, status in WorkflowStep.objects.values_list("run_id", "step_name", "status"):
            found[run_id][name] = status
        for number, run_id in enumerate(self.ids):
            if found[run_id] != expected_steps(number, self.width):
                yield self._about(run_id, f"order {number} has the steps {found[run_id]}")

    def _invariants(self) -> Iterator[str]:
        said = StringIO()
        try:
            call_command("check_storage", "--json", stdout=said)
        except SystemExit:
            for line in said.getvalue().splitlines():
                violation = json.loads(line)
                yield self._about(violation.pop("run_id"), str(violation))

    def _books(self) -> Iterator[str]:
        balance = dict(Account._default_manager.values_list("name", "cents"))
        if balance != (due := expected_balance(range(self.count), self.width)):
            yield f"the accounts hold {balance}, and should hold {due}"
        ledger = Counter(dict.fromkeys(ACCOUNTS, 0))
        for entry in Transfer._default_manager.all():
            ledger[entry.source] -= entry.cents
            ledger[entry.target] += entry.cents
        if balance != dict(ledger):
            yield f"the accounts hold {balance}, and the transfers come to {dict(ledger)}"
        steps = {
            invocation_id(run_id, name): (run_id, name)
            for run_id, name in WorkflowStep.objects.exclude(rpc_name=None).values_list("run_id", "step_name")
        }
        if strange := set(Transfer._default_manager.values_list("pk", flat=True)) - set(steps):
            yield f"transfers of no step: {sorted(strange)}"
        calls = Counter(Call._default_manager.values_list("invocation_id", "attempt"))
        for (invocation, attempt), times in calls.items():
            run_id, name = steps.get(invocation, ("unknown", invocation))
            if times > 1:
                yield self._about(run_id, f"attempt {attempt} of step {name} was called {times} times")

    def report(self) -> dict[str, Any]:
        """What came of it all; see `Report` of the tests."""
        self.look()
        problems = [*self.changed, *self.problems()]
        lost = WorkflowStepHistory._default_manager.filter(status="failed", error__code="WORKER_LOST").count()
        calls = Call._default_manager.count()
        return {
            "lost": lost,
            "calls": calls,
            "problems": problems,
            "stories": [story(run_id) for run_id in list(self.wrong)[:5]],
        }


def story(run_id: str) -> str:
    """A run and its timeline, as text."""
    service = WorkflowService()
    lines = [str(service.get_run(run_id))]
    lines += [str(step) for step in service.list_step_states(run_id)]
    for event in service.get_run_timeline(run_id) or []:
        error = "" if event.error is None else f": {str(event.error.get('message'))[:200]}"
        lines.append(f"  {event.at:%H:%M:%S.%f} {event.step_name} ({event.attempt_count}) {event.type}{error}")
    return "\n".join(lines)


def steadily(work: Callable[[], T]) -> T:
    """Do something with the database, again and again for as long as it is away."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return work()
        except DatabaseError:
            if time.monotonic() > deadline:
                raise
            connections.close_all()
            time.sleep(0.2)


def say(**what: Any) -> None:
    """One line of JSON."""
    print(json.dumps(what), flush=True)  # noqa: T201 - the answer


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, required=True)
    parser.add_argument("--open", type=int, required=True, help="orders under way at once, in different stages")
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--patience", type=float, required=True, help="seconds after which it waits no longer")
    options = parser.parse_args()
    observer = Observer(options.orders, options.open, options.width, options.seconds)
    deadline = time.monotonic() + options.patience
    steadily(observer.open_accounts)
    while (settled := steadily(observer.look)) < options.orders and time.monotonic() < deadline:
        observer.place()
        say(settled=settled)
        time.sleep(0.2)
    say(settled=settled, over=True)
    sys.stdin.readline()
    say(report=steadily(observer.report))


if __name__ == "__main__":
    main()
