"""The pictures of the README and the documentation. PIKKU_WRITE_PICTURES=1 renews the ones in docs/images."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.workflows import function, graph, node
from pikku_storage.workflows.graphs.declaration import GraphDefinition
from pikku_storage.workflows.registry import registry
from tests.console.stories import Story, Try, failed_order, now, order_in_flight, sleeping_order
from tests.console.urls import url_of

pytestmark = [pytest.mark.django_db(transaction=True)]


def in_flight() -> str:
    """A run that looks the same whenever the picture is taken."""
    started = now() - timedelta(seconds=470)
    version = registry.workflows["fulfil_order"].graph_hash
    return order_in_flight(started, id="0197c2e4-7b1a-7c51-9d0e-52a1c3f0a9c2", graph_hash=version).tell()


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("run-page-light", "wide", "light"),
        ("run-page-dark", "wide", "dark"),
        ("run-page-narrow", "narrow", "light"),
    ],
)
def test_run_page(viewer: Callable[..., Any], picture: Callable[..., Any], name: str, width: str, scheme: str) -> None:
    run_id = in_flight()
    page = viewer(width, scheme)
    page.goto(url_of(run_id))
    page.get_by_role("link", name="charge card").click()
    page.locator("#pk-panel h2", has_text="charge card").wait_for()
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    height = page.evaluate("document.documentElement.scrollHeight")
    clip = {
        "x": 0,
        "y": 0,
        "width": page.viewport_size["width"],
        "height": min(height, 1080 if width == "wide" else 1800),
    }
    assert picture(page, name, documented=True, full_page=True, clip=clip).stat().st_size > 10_000


def test_run_graph(viewer: Callable[..., Any], picture: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "workflows", dict(registry.workflows))
    monkeypatch.setattr(registry, "functions", dict(registry.functions))
    run_id = checkout().run({"order": "A17"}).id
    page = viewer()
    page.goto(url_of(run_id))
    page.locator("#pk-graph").scroll_into_view_if_needed()
    page.mouse.move(0, 0)
    assert picture(page.locator("#pk-graph"), "run-graph", documented=True).stat().st_size > 10_000


def checkout() -> GraphDefinition:
    """An order whose card is declined."""

    @function(name="shop.reserve_stock", retries=0)
    def step(order: str = "") -> str:
        return order

    @function(name="shop.charge_card", retries=0)
    def declined() -> None:
        raise ValueError("the card was declined")

    @function(name="shop.ask_for_another_card", retries=0)
    def ask(error: dict[str, Any], input: dict[str, Any], invocation_id: str) -> str:
        return "asked"

    return graph(
        "checkout",
        entry="reserve stock",
        nodes={
            "reserve stock": node(step, next=["charge card", "tell customer"]),
            "charge card": node(declined, next="pack", on_error="ask for another card"),
            "tell customer": node(step),
            "ask for another card": node(ask),
            "pack": node(step, next=["print label", "book courier"]),
            "print label": node(step, next="ship"),
            "book courier": node(step, next="ship"),
            "ship": node(step),
        },
    )


def test_run_list(viewer: Callable[..., Any], picture: Callable[..., Any]) -> None:
    many_runs()
    page = viewer()
    page.goto("/admin/pikku_workflows/workflowrun/")
    assert picture(page, "run-list", documented=True).stat().st_size > 10_000


def many_runs() -> None:
    """A shop's morning."""
    at = now()
    in_flight()
    failed_order(at - timedelta(minutes=4)).tell()
    sleeping_order(at - timedelta(minutes=21), owner_id="carol").tell()
    for index in range(24):
        story = Story(
            workflow=("fulfil_order", "send_newsletter", "restock")[index % 7 % 3],
            started=at - timedelta(minutes=6 + index * 5, seconds=index),
            ended=8 + index * 3.7,
            status="cancelled" if index == 9 else "completed",
            options={"owner_id": ("alice", "bob", "carol")[index % 3]},
        )
        if index == 9:
            story.options["error"] = {"code": "WORKFLOW_CANCELLED", "message": "The customer changed their mind"}
        if index == 5:
            story.status = "suspended"
            story.options["error"] = {"code": "RPC_NOT_FOUND", "message": "No function 'print_label' is registered"}
        for number in range(4 + index % 4):
            tries = [Try(number, number, number + 1)]
            if index % 6 == 2 and number == 1:
                tries = [
                    Try(number, number, number + 0.4, error={"message": "flaky"}),
                    Try(number + 0.5, number + 0.5, number + 1),
                ]
            story.step(f"step {number}", tries, function="work")
        story.tell()
