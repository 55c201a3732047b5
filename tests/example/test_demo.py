"""The parts of `manage.py demo` that need no worker."""

import io
import socket

import pytest
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command
from rich.console import Console

from example_project.orders import books
from example_project.orders.demo import data, report
from example_project.orders.demo.progress import runs_by_status
from example_project.orders.intake import Rejected, read_catalogue, read_orders
from example_project.orders.models import Order, OrderLine, Product
from pikku_storage.access.service import ScopeService
from pikku_storage.workflows.models import WorkflowRun
from tests.example.conftest import Fulfil, PlaceOrder


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=120)


@pytest.mark.django_db
def test_the_logins_that_are_printed_work() -> None:
    data.make_users()
    _, operator = data.make_users()

    admin = authenticate(username="admin", password="admin")
    assert admin is not None
    assert admin.is_superuser
    assert authenticate(username="ops", password="ops") == operator
    assert operator.has_perm("orders.view_order")
    held = ScopeService().resolve_scopes(operator)
    assert "admin:workflows:read" in held
    assert not [scope for scope in held if scope.endswith((":manage", ":write", ":reveal"))]


@pytest.mark.django_db
def test_loading_twice_adds_nothing() -> None:
    catalogue = read_catalogue()
    orders, _ = read_orders(catalogue)

    data.load(catalogue, orders)
    counts = Order.objects.count(), OrderLine.objects.count(), Product.objects.count()
    data.load(catalogue, orders)

    assert counts == (Order.objects.count(), OrderLine.objects.count(), Product.objects.count())
    assert counts[0] == len(orders)


def test_starting_anew_forgets_the_orders_and_their_runs_and_nothing_else(
    place_order: PlaceOrder, fulfil: Fulfil
) -> None:
    other = fulfil(place_order())
    WorkflowRun.objects.filter(pk=other.id).update(workflow="somebody_elses")
    fulfil(place_order("A2"))

    data.forget_orders()

    assert list(WorkflowRun.objects.values_list("pk", flat=True)) == [other.id]
    assert not Order.objects.exists()
    assert not Product.objects.exists()


def test_the_report_counts_runs_retries_and_compensations(
    place_order: PlaceOrder, fulfil: Fulfil, console: Console
) -> None:
    fulfil(place_order("A1", card="tok_slow"))
    fulfil(place_order("A2", card="tok_declined"))

    report.print_runs(console, seconds=1.5)
    report.print_books(console, books.check())

    row = next(line for line in printed(console).splitlines() if "completed" in line)
    orders, _steps, retries, compensations = [cell.strip() for cell in row.split("│")[2:6]]
    assert (orders, retries, compensations) == ("2", "1", "1")
    assert "1 declined, 1 shipped" in printed(console)
    assert "€70.00 taken, €0.00 refunded" in printed(console)
    assert "The books balance: 2 orders checked" in printed(console)
    assert runs_by_status() == {"completed": 2}


def test_the_report_names_what_does_not_balance(place_order: PlaceOrder, console: Console) -> None:
    place_order("A1")

    report.print_books(console, books.check())

    assert "The books do not balance: 1 discrepancies" in printed(console)
    assert "order A1: the customer must be told" in printed(console)


def test_malformed_rows_are_printed_as_they_are(console: Console) -> None:
    report.print_rejected(console, "orders.jsonl", [Rejected(line=7, reason="email is not an address: '[bold]x'")])

    assert "1 malformed rows in orders.jsonl were left out" in printed(console)
    assert "line   7: email is not an address: '[bold]x'" in printed(console)


def test_a_port_in_use_is_told_before_any_work_is_done() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        with pytest.raises(CommandError, match=r"cannot be used .* choose another one: PORT=8001"):
            call_command("demo", port=taken.getsockname()[1])
