"""The shop in the admin, to look at."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from example_project.orders.models import Notification, Order, OrderLine, Parcel, Payment, Product, Refund

if TYPE_CHECKING:
    # Generic for the type checker only.
    _ModelAdmin = admin.ModelAdmin[Any]
    _TabularInline = admin.TabularInline[Any, Any]
else:
    _ModelAdmin = admin.ModelAdmin
    _TabularInline = admin.TabularInline


class ReadOnly:
    """Rows that only the workflow writes."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class OrderLineInline(ReadOnly, _TabularInline):
    model = OrderLine
    extra = 0


@admin.register(Order)
class OrderAdmin(ReadOnly, _ModelAdmin):
    list_display = ["id", "customer", "courier", "card", "total_cents", "placed_at"]
    list_filter = ["courier", "card"]
    search_fields = ["id", "customer", "email"]
    inlines = [OrderLineInline]


@admin.register(Product)
class ProductAdmin(ReadOnly, _ModelAdmin):
    list_display = ["sku", "name", "price_cents", "opening_stock", "stock"]


@admin.register(Payment, Refund)
class MoneyAdmin(ReadOnly, _ModelAdmin):
    list_display = ["order", "amount_cents", "invocation_id", "created_at"]
    search_fields = ["order__id"]


@admin.register(Parcel)
class ParcelAdmin(ReadOnly, _ModelAdmin):
    list_display = ["order", "courier", "tracking", "pieces", "created_at"]
    list_filter = ["courier"]
    search_fields = ["order__id", "tracking"]


@admin.register(Notification)
class NotificationAdmin(ReadOnly, _ModelAdmin):
    list_display = ["order", "kind", "email", "created_at"]
    list_filter = ["kind"]
    search_fields = ["order__id"]
