"""The dashboard and its short version, as somebody sees them who looks after the workflows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.deployments.models import Deployment
from tests.browser.test_pictures import many_runs
from tests.console.stories import Story, Try, now

pytestmark = [pytest.mark.django_db(transaction=True)]

INDEX = "/admin/pikku_workflows/"


def busy_shop() -> None:
    """A day of a shop, in which something fails now and then."""
    at = now()
    many_runs()
    per_hour = (0, 14, 16, 13, 12, 9, 6, 4, 2, 1, 1, 0, 1, 2, 3, 5, 8, 9, 11, 10, 12, 13, 15, 14)
    for hour, count in enumerate(per_hour):
        for index in range(count):
            status = (
                "failed" if (hour + index * 3) % 17 == 4 else "cancelled" if (hour * index) % 41 == 7 else "completed"
            )
            Story(
                workflow=("fulfil_order", "send_newsletter", "restock")[index % 5 % 3],
                status=status,
                started=at - timedelta(hours=hour, minutes=index),
                options={"last_worker": f"celery@shop-{index % 2}"},
            ).tell()
    Story(started=at - timedelta(minutes=1), options={"last_worker": "celery@shop-1"}).tell()
    waiting = Story(status="running", started=at - timedelta(minutes=2), options={"last_worker": "celery@shop-0"})
    waiting.step("print label", [Try(20, scheduled=20)], function="print_label", due=150, queue="labels").tell()
    Deployment.objects.put("celery@shop-0", "celery://celery@shop-0", [], at=at)


@pytest.mark.parametrize(
    ("width", "scheme", "name"),
    [("wide", "light", "dashboard"), ("wide", "dark", "dashboard-dark"), ("narrow", "light", "dashboard-narrow")],
)
def test_the_dashboard(
    viewer: Callable[..., Any], picture: Callable[..., Any], width: str, scheme: str, name: str
) -> None:
    busy_shop()
    page = viewer(width, scheme)
    page.goto(INDEX)
    assert page.get_by_role("img", name="runs by when they began").is_visible()
    assert page.locator(".pk-part.pk-is-failed").count() > 3
    page.get_by_text("labels", exact=True).wait_for()
    page.get_by_text("celery@shop-1").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    picture(page, name, documented=name == "dashboard", full_page=True)

    page.get_by_text("The numbers").click()
    assert page.get_by_role("row").count() > 24
    page.get_by_role("link", name="Last 14 days").click()
    page.wait_for_url("**chart=14d")
    assert page.locator(".pk-bucket").count() == 14


def test_the_front_page_begins_with_the_numbers(viewer: Callable[..., Any], picture: Callable[..., Any]) -> None:
    Story(status="failed").tell()
    page = viewer(javascript=False)
    page.goto("/admin/")
    picture(page, "front-page")
    page.get_by_role("definition").filter(has_text="begun within 24 hours").get_by_role("link", name="1").click()
    assert page.url.endswith("?status=failed&started=24h")
    assert page.locator("#result_list tbody tr").count() == 1
