"""Times in the zone of the caller's browser."""

from __future__ import annotations

import asyncio

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone

from console.middleware import viewer_zone
from tests.console.stories import failed_order, now
from tests.console.urls import url_of


def asked(cookie: str | None) -> HttpRequest:
    request = RequestFactory().get("/")
    if cookie is not None:
        request.COOKIES["pikku_zone"] = cookie
    return request


ZONES = [
    ("Asia/Tokyo", "Asia/Tokyo"),
    ("America%2FNew_York", "America/New_York"),
    (None, "UTC"),
    ("", "UTC"),
    ("Mars/Olympus", "UTC"),
    ("../../etc/passwd", "UTC"),
]


@pytest.mark.parametrize(("cookie", "zone"), ZONES)
def test_the_zone_that_the_browser_names(cookie: str | None, zone: str) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(timezone.get_current_timezone_name())

    async def aview(request: HttpRequest) -> HttpResponse:
        return HttpResponse(timezone.get_current_timezone_name())

    assert viewer_zone(view)(asked(cookie)).content.decode() == zone
    assert asyncio.run(viewer_zone(aview)(asked(cookie))).content.decode() == zone
    assert timezone.get_current_timezone_name() == "UTC"


@pytest.mark.django_db
def test_a_page_of_the_console_is_in_that_zone(root_client: Client) -> None:
    run_id = failed_order(now()).tell()
    assert "JST" not in root_client.get(url_of(run_id)).content.decode()
    root_client.cookies["pikku_zone"] = "Asia/Tokyo"
    assert "JST" in root_client.get(url_of(run_id)).content.decode()
