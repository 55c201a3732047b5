"""The shop's tables: what it sells, what was ordered, and one row for each thing that was really done.

Every key is a text that the application makes, so the same tables work on any database that Django supports.
"""

from django.db import models


class Product(models.Model):
    """An article and how many of it lie in the warehouse."""

    sku = models.CharField(max_length=40, primary_key=True)
    name = models.CharField(max_length=120)
    price_cents = models.PositiveIntegerField()
    opening_stock = models.PositiveIntegerField(help_text="What lay there before the first order")
    stock = models.PositiveIntegerField(help_text="What lies there now")

    class Meta:
        ordering = ["sku"]

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """An order as the customer placed it. It never changes; what became of it is in the effects below."""

    id = models.CharField(max_length=40, primary_key=True)
    customer = models.CharField(max_length=120)
    email = models.EmailField()
    postcode = models.CharField(max_length=20)
    courier = models.CharField(max_length=40)
    card = models.CharField(max_length=40, help_text="The payment provider's token, never a card number")
    total_cents = models.PositiveIntegerField()
    placed_at = models.DateTimeField()

    class Meta:
        ordering = ["placed_at", "id"]

    def __str__(self) -> str:
        return self.id


class OrderLine(models.Model):
    """So many of one product, at the price of the day."""

    id = models.CharField(max_length=100, primary_key=True, help_text="Order and product, as in A1001/TEA-ASSAM")
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT, related_name="+")
    quantity = models.PositiveIntegerField()
    price_cents = models.PositiveIntegerField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product_id}"


class Effect(models.Model):
    """Something a workflow step did, keyed by the step's invocation id.

    A step may run more than once, because a worker can die after the effect and before the step is recorded. All its
    attempts have the same invocation id, so the primary key lets the effect happen once.
    """

    invocation_id = models.CharField(max_length=64, primary_key=True)
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="%(class)ss")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["created_at", "invocation_id"]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} for {self.order_id}"


class StockReservation(Effect):
    """All lines of the order were taken from the stock."""


class StockRelease(Effect):
    """All lines of the order were put back."""


class Payment(Effect):
    amount_cents = models.PositiveIntegerField()


class Refund(Effect):
    amount_cents = models.PositiveIntegerField()


class PackedItem(Effect):
    line = models.ForeignKey(OrderLine, on_delete=models.CASCADE, related_name="+")


class Parcel(Effect):
    courier = models.CharField(max_length=40)
    tracking = models.CharField(max_length=60, unique=True)
    pieces = models.PositiveIntegerField()


class Invoice(Effect):
    amount_cents = models.PositiveIntegerField()


class Notification(Effect):
    """The one mail that tells the customer how the order ended."""

    class Kind(models.TextChoices):
        SHIPPED = "shipped", "Shipped"
        OUT_OF_STOCK = "out of stock", "Out of stock"
        DECLINED = "declined", "Card declined"
        CANCELLED = "cancelled", "Cancelled and refunded"

    kind = models.CharField(max_length=20, choices=Kind.choices)
    email = models.EmailField()
