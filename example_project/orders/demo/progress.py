"""Starting the runs and waiting until they settle, with a bar on a terminal and plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db.models import Count
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from example_project.orders.models import Order
from example_project.orders.workflows import fulfil_order
from pikku_storage.exceptions import WorkflowApprovalResolvedError
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService

SETTLED = frozenset({"completed", "failed", "cancelled"})
POLL_SECONDS = 0.25
SECONDS_BETWEEN_LINES = 2.0
SECONDS_BETWEEN_SAME_LINES = 10.0

Show = Callable[[str, int], None]


def order_input(order: Order) -> dict[str, Any]:
    """What the workflow is told about the order."""
    return {
        "order_id": order.id,
        "email": order.email,
        "card": order.card,
        "courier": order.courier,
        "postcode": order.postcode,
        "total_cents": order.total_cents,
        "items": [{"sku": line.product_id, "quantity": line.quantity} for line in order.lines.all()],
    }


def start_run(order: Order, owner: AbstractUser) -> None:
    """Start the order's run; if it was started already, it is left as it is."""
    fulfil_order.start(order_input(order), owner=owner, idempotency_key=f"order-{order.id}")


def runs_by_status() -> dict[str, int]:
    """How many of the shop's runs are in each status."""
    rows = WorkflowRun.objects.filter(workflow=fulfil_order.name).order_by().values_list("status")
    return dict(rows.annotate(Count("id")))


def start_and_wait(
    owner: AbstractUser, approver: AbstractUser, console: Console, *, seconds: float, watch: Callable[[], None]
) -> bool:
    """Start one run per order and wait until all have settled, but for one that is left to be released. False if the
    time was not enough.

    The `approver` releases the others. `watch` is called now and then, to look after the processes that do the work.
    """
    deadline = time.monotonic() + seconds
    orders = list(Order.objects.prefetch_related("lines"))
    with _progress(console, total=len(orders)) as show:
        for number, order in enumerate(orders, start=1):
            start_run(order, owner)
            if number % 20 == 0:
                show(f"starting ({number} of {len(orders)})", _settled(runs_by_status()))
        while (settled := _settled(runs_by_status())) + release_all_but_one(approver) < len(orders):
            if time.monotonic() > deadline:
                return False
            show("fulfilling", settled)
            watch()
            time.sleep(POLL_SECONDS)
        show("fulfilled", settled)
    return True


def release_all_but_one(approver: AbstractUser) -> int:
    """Release the large orders that wait for it, but for the oldest, which is left for you to see; whether there is
    one."""
    waiting = WorkflowRunService().list_open_approvals(workflow_name=fulfil_order.name)
    for approval in waiting[1:]:
        # Somebody may be faster, in the admin or at another terminal.
        with suppress(WorkflowApprovalResolvedError):
            WorkflowService().approve_step(approval.run_id, approval.reason, {"release": True}, by=approver)
    return len(waiting[:1])


def _settled(counts: dict[str, int]) -> int:
    return sum(count for status, count in counts.items() if status in SETTLED)


@contextmanager
def _progress(console: Console, *, total: int) -> Iterator[Show]:
    if not console.is_terminal:
        yield _plain_lines(console, total)
        return
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("orders settled"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=total)
        yield lambda description, done: progress.update(task, description=description, completed=done)


def _plain_lines(console: Console, total: int) -> Show:
    last_time, last_done = 0.0, -1

    def show(description: str, done: int) -> None:
        nonlocal last_time, last_done
        now = time.monotonic()
        wait = SECONDS_BETWEEN_LINES if done != last_done else SECONDS_BETWEEN_SAME_LINES
        if done >= total or now - last_time >= wait:
            last_time, last_done = now, done
            console.print(f"  {description}: {done} of {total} orders settled")

    return show
