"""Operating on runs as somebody does who sits before the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pikku_storage.workflows.models import WorkflowRun
from tests.console.stories import failed_order, now, order_in_flight
from tests.console.urls import list_url, url_of

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("width", "scheme"), [("wide", "light"), ("narrow", "dark")])
def test_forking_by_keyboard_and_mouse(
    viewer: Callable[..., Any], picture: Callable[..., Any], width: str, scheme: str
) -> None:
    run_id = failed_order(now(), input={"order_id": "B4"}).tell()
    page = viewer(width, scheme)
    page.goto(url_of(run_id))
    page.get_by_role("link", name="Fork", exact=True).click()
    page.get_by_label("From step").fill("charge card")
    page.keyboard.press("Enter")
    page.get_by_text("Carried out again").wait_for()
    picture(page, f"operation-fork-{width}")
    page.get_by_label("Reason").fill("another card")
    page.get_by_role("button", name="Fork").click()

    page.get_by_text("forked.").wait_for()
    assert page.url.endswith(url_of(WorkflowRun.objects.get(origin_run_id=run_id).pk))


@pytest.mark.parametrize(("width", "scheme"), [("wide", "dark"), ("narrow", "light")])
def test_cancelling_several_from_the_list(
    viewer: Callable[..., Any], picture: Callable[..., Any], width: str, scheme: str
) -> None:
    ids = [order_in_flight(now()).tell() for _ in range(3)]
    page = viewer(width, scheme)
    page.goto(list_url())
    for box in page.locator("input.action-select").all()[:2]:
        box.check()
    page.locator("select[name=action]").select_option(label="Cancel")
    picture(page, f"operation-choose-{width}")
    page.get_by_role("button", name="Go").click()
    page.get_by_label("Reason").fill("stock is gone")
    picture(page, f"operation-cancel-{width}")
    page.get_by_role("button", name="Cancel").click()

    page.get_by_text("2 runs: cancelled.").wait_for()
    assert WorkflowRun.objects.filter(pk__in=ids, status="cancelled").count() == 2
