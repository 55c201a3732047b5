"""Refunds in the admin, to look at."""

from django.contrib import admin

from example_project.orders.admin import MoneyAdmin
from example_project.support.models import GoodwillRefund

admin.site.register(GoodwillRefund, MoneyAdmin)
