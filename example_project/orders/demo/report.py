"""What the demo prints at its end: the runs, the work they took, the check of the books, and what is scheduled."""

from collections import Counter

from django.db.models import Count, Q, Sum
from rich.console import Console
from rich.table import Table

from example_project.orders.books import Discrepancy, orders_to_release
from example_project.orders.intake import Rejected
from example_project.orders.models import Notification, Order, Parcel, Payment, Product, Refund
from example_project.orders.steps import undo_order
from example_project.orders.workflows import WORKFLOWS, fulfil_order
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.schedules.fires import local
from pikku_storage.workflows.schedules.service import ScheduleService, next_fires_of

MOST_LINES = 20


def print_rejected(console: Console, file: str, rejected: list[Rejected]) -> None:
    """The malformed rows, by line number."""
    if not rejected:
        return
    console.print(f"[yellow]{len(rejected)} malformed rows in {file} were left out:[/]")
    for row in rejected:
        console.print(f"  line {row.line:>3}: {row.reason}", markup=False, highlight=False)


def print_runs(console: Console, *, seconds: float) -> None:
    """The table of orders by the status of their runs, each with the work it took; that of a parcel counts by the
    status of the parcel's own run."""
    table = Table("Runs", title=f"{fulfil_order.name}: {seconds:.1f} seconds", title_justify="left")
    for column in ("orders", "steps", "retries", "compensations"):
        table.add_column(column, justify="right")
    runs = WorkflowRun.objects.filter(workflow=fulfil_order.name).order_by().values_list("status")
    count = dict(runs.annotate(Count("id")))
    steps = WorkflowStep.objects.filter(run__workflow__in=WORKFLOWS).order_by().values("run__status")
    work = {
        row["run__status"]: (row["steps"], row["attempts"] - row["steps"], row["compensations"])
        for row in steps.annotate(
            steps=Count("id"),
            attempts=Sum("current_attempt", default=0),
            compensations=Count("id", filter=Q(rpc_name=undo_order.name, status="succeeded")),
        )
    }
    for status in sorted(count):
        table.add_row(status, str(count[status]), *map(str, work.get(status, (0, 0, 0))))
    if len(count) > 1:
        table.add_section()
        sums = [sum(column) for column in zip(*work.values(), strict=True)]
        table.add_row("all", str(sum(count.values())), *map(str, sums))
    console.print(table)


def print_books(console: Console, discrepancies: list[Discrepancy]) -> None:
    """How the orders ended, what the shop's accounts say, and whether they add up."""
    ends = Counter(Notification.objects.values_list("kind", flat=True))
    console.print("Orders: " + ", ".join(f"{ends[kind]} {kind}" for kind in sorted(ends)), highlight=False)
    taken = Payment.objects.aggregate(sum=Sum("amount_cents", default=0))["sum"]
    returned = Refund.objects.aggregate(sum=Sum("amount_cents", default=0))["sum"]
    sold = Product.objects.aggregate(sum=Sum("opening_stock", default=0) - Sum("stock", default=0))["sum"]
    pieces = Parcel.objects.aggregate(sum=Sum("pieces", default=0))["sum"]
    console.print(
        f"Money: {_euros(taken)} taken, {_euros(returned)} refunded, {_euros(taken - returned)} kept. "
        f"Stock: {sold} pieces out. Parcels: {Parcel.objects.count()} with {pieces} pieces.",
        highlight=False,
    )
    if waiting := orders_to_release():
        console.print(f"To be released: {', '.join(sorted(waiting))} (see the suspended runs in the admin).")
    if not discrepancies:
        console.print(f"[bold green]The books balance[/]: {Order.objects.count()} orders checked.")
        return
    console.print(f"[bold red]The books do not balance[/]: {len(discrepancies)} discrepancies.")
    for discrepancy in discrepancies[:MOST_LINES]:
        console.print(f"  {discrepancy}", markup=False, highlight=False)
    if len(discrepancies) > MOST_LINES:
        console.print(f"  … and {len(discrepancies) - MOST_LINES} more")


def print_schedules(console: Console) -> None:
    """What the relay will start by itself, and when."""
    for schedule in ScheduleService().list():
        for fire in next_fires_of(schedule, 1):
            moment = local(fire, schedule.timezone)
            console.print(f"Scheduled: {schedule.name}, next on {moment:%A at %H:%M %Z}.", highlight=False)


def _euros(cents: int) -> str:
    return f"€{cents / 100:,.2f}"
