"""The demo's rows: users, catalogue and orders; and the end of what an earlier demo left."""

from django.contrib.auth.models import AbstractUser, Permission, User
from django.db import transaction

from example_project.orders.intake import Article, OrderRow
from example_project.orders.models import Order, OrderLine, Product
from example_project.orders.scopes import OPERATOR_ROLE
from example_project.orders.workflows import WORKFLOWS
from pikku_storage.access.service import ScopeService
from pikku_storage.workflows.runs import WorkflowRunService

ADMIN, OPERATOR = "admin", "ops"
SEEN_BY_OPERATOR = "orders"
PAGE = 500


def make_users() -> tuple[AbstractUser, AbstractUser]:
    """A superuser and a staff user who may look, each with the name as password."""
    admin, _ = User.objects.get_or_create(username=ADMIN, defaults={"email": "admin@shop.example"})
    operator, _ = User.objects.get_or_create(username=OPERATOR, defaults={"email": "ops@shop.example"})
    admin.is_staff = admin.is_superuser = operator.is_staff = True
    for user in (admin, operator):
        # Hashing is slow on purpose, so not again when the password stands.
        if not user.check_password(user.username):
            user.set_password(user.username)
        user.save()
    operator.user_permissions.set(
        Permission.objects.filter(content_type__app_label=SEEN_BY_OPERATOR, codename__startswith="view_")
    )
    scopes = ScopeService()
    scopes.sync_scopes()
    scopes.sync_system_roles()
    scopes.add_user_to_role(operator, OPERATOR_ROLE)
    return admin, operator


def forget_orders() -> None:
    """Remove the shop's orders with all that was done for them, and the runs that did it. Nothing else is touched."""
    runs = WorkflowRunService()
    for name in WORKFLOWS:
        while page := runs.list_runs(workflow_name=name, limit=PAGE):
            for run in page:
                runs.delete_run(run.id)
    Order.objects.all().delete()
    Product.objects.all().delete()


@transaction.atomic
def load(catalogue: dict[str, Article], orders: list[OrderRow]) -> None:
    """Write the catalogue and the orders that are not there yet."""
    Product.objects.bulk_create(
        [
            Product(
                sku=article.sku,
                name=article.name,
                price_cents=article.price_cents,
                opening_stock=article.opening_stock,
                stock=article.opening_stock,
            )
            for article in catalogue.values()
            if not Product.objects.filter(pk=article.sku).exists()
        ]
    )
    known = set(Order.objects.values_list("id", flat=True))
    new = [order for order in orders if order.id not in known]
    Order.objects.bulk_create(
        [
            Order(
                id=order.id,
                customer=order.customer,
                email=order.email,
                postcode=order.postcode,
                courier=order.courier,
                card=order.card,
                total_cents=order.total_cents,
                placed_at=order.placed_at,
            )
            for order in new
        ]
    )
    OrderLine.objects.bulk_create(
        [
            OrderLine(
                id=f"{order.id}/{item.sku}",
                order_id=order.id,
                product_id=item.sku,
                quantity=item.quantity,
                price_cents=catalogue[item.sku].price_cents,
            )
            for order in new
            for item in order.items
        ]
    )
