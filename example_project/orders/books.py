"""The check of the books: does what the shop's tables say add up, to the piece and to the cent?

Three views of the same facts must agree: the warehouse's shelves, each order's own rows, and the steps that the
workflow engine says it ran. A step that ran twice, was lost, or was left half done shows in at least one of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from example_project.orders import steps
from example_project.orders.models import (
    Effect,
    Invoice,
    Notification,
    Order,
    OrderLine,
    PackedItem,
    Parcel,
    Payment,
    Product,
    Refund,
    StockRelease,
    StockReservation,
)
from example_project.orders.workflows import WORKFLOWS, fulfil_order
from pikku_storage.ids import invocation_id
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.runs import WorkflowRunService

# The row that a succeeded step must have left behind.
EFFECT_OF: dict[str, type[Effect]] = {
    steps.reserve_stock.name: StockReservation,
    steps.charge_card.name: Payment,
    steps.pack_item.name: PackedItem,
    steps.book_parcel.name: Parcel,
    steps.write_invoice.name: Invoice,
    steps.notify.name: Notification,
}


MOST_APPROVALS = 1_000


@dataclass(frozen=True)
class Discrepancy:
    """Something that does not add up, and where."""

    subject: str
    problem: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}"


@dataclass
class Account:
    """All that was done for one order."""

    ordered: Counter[str] = field(default_factory=Counter)
    reserved: int = 0
    released: int = 0
    paid_cents: int = 0
    refunded_cents: int = 0
    packed: Counter[str] = field(default_factory=Counter)
    parcels: list[int] = field(default_factory=list)
    invoices: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    waits_for_release: bool = False

    @property
    def holds_stock(self) -> int:
        return self.reserved - self.released

    @property
    def holds_cents(self) -> int:
        return self.paid_cents - self.refunded_cents


def check() -> list[Discrepancy]:
    """Everything that does not add up; empty when the books balance.

    Meant for settled orders, and those that wait for a release: one that is still under way is half done, and is
    reported as such.
    """
    accounts = read_accounts()
    return [*check_stock(accounts), *check_orders(accounts), *check_steps()]


def read_accounts() -> dict[str, Account]:
    """Each order's account, by order id."""
    accounts: dict[str, Account] = defaultdict(Account)
    for order_id, sku, quantity in OrderLine.objects.values_list("order_id", "product_id", "quantity"):
        accounts[order_id].ordered[sku] += quantity
    for order_id in StockReservation.objects.values_list("order_id", flat=True):
        accounts[order_id].reserved += 1
    for order_id in StockRelease.objects.values_list("order_id", flat=True):
        accounts[order_id].released += 1
    for order_id, cents in Payment.objects.values_list("order_id", "amount_cents"):
        accounts[order_id].paid_cents += cents
    for order_id, cents in Refund.objects.values_list("order_id", "amount_cents"):
        accounts[order_id].refunded_cents += cents
    for order_id, line_id in PackedItem.objects.values_list("order_id", "line_id"):
        accounts[order_id].packed[line_id.removeprefix(f"{order_id}/")] += 1
    for order_id, pieces in Parcel.objects.values_list("order_id", "pieces"):
        accounts[order_id].parcels.append(pieces)
    for order_id, cents in Invoice.objects.values_list("order_id", "amount_cents"):
        accounts[order_id].invoices.append(cents)
    for order_id in orders_to_release():
        accounts[order_id].waits_for_release = True
    for order_id, kind in Notification.objects.values_list("order_id", "kind"):
        accounts[order_id].told.append(kind)
    return accounts


def orders_to_release() -> set[str]:
    """The orders whose runs wait for somebody to release them. They are paid and hold their stock."""
    waiting = WorkflowRunService().list_open_approvals(workflow_name=fulfil_order.name, limit=MOST_APPROVALS)
    runs = WorkflowRun.objects.filter(pk__in=[approval.run_id for approval in waiting])
    return {(data or {})["order_id"] for data in runs.values_list("input", flat=True)}


def check_stock(accounts: dict[str, Account]) -> Iterator[Discrepancy]:
    """What lies on the shelf is what lay there less what the orders hold."""
    held: Counter[str] = Counter()
    for account in accounts.values():
        for sku, quantity in account.ordered.items():
            held[sku] += quantity * account.holds_stock
    for sku, opening, stock in Product.objects.values_list("sku", "opening_stock", "stock"):
        if stock != opening - held[sku]:
            yield Discrepancy(
                f"product {sku}", f"{stock} on the shelf, but {opening} less {held[sku]} sold were expected"
            )


def check_orders(accounts: dict[str, Account]) -> Iterator[Discrepancy]:
    """Each order was told one end, and its stock, money, parcel and invoice are those of that end."""
    for order_id, total in Order.objects.values_list("id", "total_cents"):
        account = accounts[order_id]
        if len(account.told) != (0 if account.waits_for_release else 1):
            told = " and ".join(account.told) or "nothing"
            yield Discrepancy(f"order {order_id}", f"the customer must be told one end of the order, was told {told}")
            continue
        state = account.told[0] if account.told else "to be released"
        shipped = account.told == [Notification.Kind.SHIPPED]
        held = shipped or account.waits_for_release
        pieces = account.ordered.total()
        expected: dict[str, tuple[object, object]] = {
            "orders' worth of stock held": (account.holds_stock, int(held)),
            "cents held": (account.holds_cents, total if held else 0),
            "pieces in each parcel": (account.parcels, [pieces] if shipped else []),
            "cents on each invoice": (account.invoices, [total] if shipped else []),
        }
        if shipped:
            expected["times each line was packed"] = (dict(account.packed), dict.fromkeys(account.ordered, 1))
        for what, (found, wanted) in expected.items():
            if found != wanted:
                yield Discrepancy(f"order {order_id} ({state})", f"{what}: {found}, expected {wanted}")


def check_steps() -> Iterator[Discrepancy]:
    """Each step that succeeded left its effect, and no effect came from elsewhere.

    A step that failed may have left one: its attempt may have died after the deed.
    """
    succeeded: dict[str, set[str]] = defaultdict(set)
    started: dict[str, set[str]] = defaultdict(set)
    rows = WorkflowStep.objects.filter(run__workflow__in=WORKFLOWS, rpc_name__isnull=False)
    for run_id, step_name, function, status in rows.values_list("run_id", "step_name", "rpc_name", "status"):
        key = invocation_id(run_id, step_name)
        started[function or ""].add(key)
        if status == "succeeded":
            succeeded[function or ""].add(key)
    for function, effect in EFFECT_OF.items():
        done = set(effect._default_manager.values_list("invocation_id", flat=True))
        name = effect._meta.verbose_name
        for key in sorted(succeeded[function] - done):
            yield Discrepancy(f"step {function}", f"succeeded under {key}, but its {name} is missing")
        for key in sorted(done - started[function]):
            yield Discrepancy(f"step {function}", f"a {name} under {key} belongs to no step")
