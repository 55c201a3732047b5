"""Every page of the console in a real browser: nothing to complain of, for people with a small screen, in the dark, and
with a screen reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User

from tests.browser.conftest import IS_UNFOLD
from tests.console.test_gate import ADDRESSES, ROOMS

pytestmark = [pytest.mark.django_db(transaction=True)]

HEAVIEST = 300_000
GRAVE = {"serious", "critical"}


def grave_faults(page: Any) -> list[str]:
    """What axe-core finds on the page that keeps people from using it."""
    if IS_UNFOLD:
        return []
    # Style sheets would be loaded once more, from addresses that are not theirs.
    found = Axe().run(page, options={"preload": False}).response["violations"]
    return [
        f"{fault['id']} ({fault['impact']}): {node['html'][:160]} ({node['any'][0]['message'] if node['any'] else ''})"
        for fault in found
        if fault["impact"] in GRAVE
        for node in fault["nodes"]
    ]


@pytest.mark.parametrize(("width", "scheme"), [("wide", "light"), ("narrow", "dark")])
@pytest.mark.parametrize("room", ROOMS)
def test_a_page(viewer: Callable[..., Any], picture: Callable[..., Any], room: str, width: str, scheme: str) -> None:
    owner = User.objects.create_user("owner", is_staff=True)
    rows = ROOMS[room].make(owner)
    page = viewer(width, scheme)
    faults: list[str] = []
    seen = 0
    for address in (address for address in ADDRESSES if address.room is ROOMS[room]):
        url = address.url(rows)
        answer = page.request.get(url)
        assert answer.status == 200, url
        # What scripts load is a part of a page, and what is downloaded is none.
        if "text/html" not in answer.headers["content-type"] or "</html>" not in answer.text():
            continue
        page.goto(url)
        seen += 1
        picture(page, f"{address.name}-{width}-{scheme}", full_page=True)
        faults += [f"{address.name}: {fault}" for fault in grave_faults(page)]
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"):
            faults.append(f"{address.name}: is wider than the window")
        if (weight := len(answer.body())) > HEAVIEST:
            faults.append(f"{address.name}: weighs {weight} bytes")
    assert seen
    assert not faults, "\n".join(faults)
