"""What of the shop is served over HTTP."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from example_project.orders.demo.progress import order_input
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService

pytestmark = pytest.mark.django_db(transaction=True)


def test_orders_are_fulfilled_for_whoever_may_add_them(place_order: Callable[..., Any]) -> None:
    order = order_input(place_order("A1"))
    clerk = User.objects.create_user("clerk")
    browser = Client()
    browser.force_login(clerk)
    assert browser.post("/workflows/fulfil_order/start").status_code == 403
    clerk.user_permissions.add(Permission.objects.get(codename="add_order", content_type__app_label="orders"))
    response = browser.post("/workflows/fulfil_order/start", {"data": order}, "application/json")
    assert response.status_code == 200, response.content
    run = WorkflowService().get_run(response.json()["runId"])
    assert run is not None
    assert run.owner_id == str(clerk.pk)


def test_nothing_else_is() -> None:
    served = {
        name
        for name, definition in registry.workflows.items()
        if definition.http and definition.func.__module__.startswith("example_project")
    }
    assert served == {"fulfil_order"}
