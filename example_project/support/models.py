"""What support gives back to customers."""

from django.db import models

from example_project.orders.models import Effect


class GoodwillRefund(Effect):
    """The price of an order that was shipped, given back; once for each order."""

    amount_cents = models.PositiveIntegerField()

    class Meta(Effect.Meta):
        constraints = [models.UniqueConstraint(fields=["order"], name="one_goodwill_refund")]
