"""What somebody does on the page of a run: answers, retries, forks, opens child runs, and follows it to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest
from pytest_django import Settings

from pikku_storage.workflows import function, graph, node, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from tests.browser.test_every_page import grave_faults
from tests.browser.test_run_page import scrolls_sideways, state_of
from tests.conformance.recording import RecordingDispatcher
from tests.console.stories import Story, Try, failed_order, now, order_in_flight
from tests.console.urls import list_url, url_of

pytestmark = [pytest.mark.django_db(transaction=True)]
Viewer = Callable[..., Any]
Picture = Callable[..., Any]


@dataclass
class Parcel:
    """What is asked."""

    pieces: int
    fragile: bool
    carrier: Literal["dhl", "ups"] = "dhl"
    note: str | None = None


@pytest.fixture(autouse=True)
def _alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker, and definitions that are gone after the test."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DISPATCHER": RecordingDispatcher.PATH}
    monkeypatch.setattr(registry, "workflows", dict(registry.workflows))
    monkeypatch.setattr(registry, "functions", dict(registry.functions))


def going_on(run_id: str) -> None:
    """What a worker does for a message."""
    WorkflowService().orchestrate_workflow(run_id)


def test_a_real_run_is_followed_from_its_start_over_an_approval_to_its_end(viewer: Viewer, picture: Picture) -> None:
    @function(name="browser.weigh", retries=0)
    def weigh(order: str) -> int:
        return len(order)

    @workflow(name="browser.ship")
    def ship(flow: Flow, order: str) -> Any:
        grams = flow.do("weigh", weigh, {"order": order})
        answer = flow.approval("Ship it?", Parcel)
        flow.do("label", weigh, {"order": order})
        return {"grams": grams, "answer": answer.data}

    run = ship.start({"order": "A17"})
    page = viewer()
    page.goto(url_of(run.id))
    page.get_by_text("No step yet").wait_for()
    going_on(run.id)
    gate = page.locator("#pk-gate form")
    gate.wait_for()
    assert state_of(page, "weigh") == "succeeded"
    page.locator("#pk-head .pk-pill", has_text="Suspended").wait_for()
    picture(page, "gate-wide", full_page=True)

    # What does not fit is said beside its field, and what was written stays.
    gate.get_by_label("Pieces").fill("2.5")
    gate.get_by_label("Note").fill("mind")
    page.get_by_role("button", name="Send the answer").click()
    page.get_by_text("Enter a whole number").wait_for()
    assert page.locator(".pk-field.pk-has-errors").count() == 2
    assert page.get_by_label("Note").input_value() == "mind"
    picture(page, "gate-errors", full_page=True)
    assert grave_faults(page) == []

    # By keyboard only.
    page.get_by_label("Pieces").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("2")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("mind the step")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("is taken.").wait_for()
    going_on(run.id)
    page.locator("#pk-head .pk-pill", has_text="Completed").wait_for()
    page.locator("#pk-aside", has_text="mind the step").wait_for()
    assert run.output == {
        "grams": 3,
        "answer": {"pieces": 2, "fragile": True, "carrier": "dhl", "note": "mind the step"},
    }
    assert page.locator("#pk-gate").inner_text() == ""
    page.wait_for_function("document.querySelector('.pk-run').dataset.following === 'no'")


def test_a_form_that_is_being_filled_in_is_left_alone(viewer: Viewer) -> None:
    @workflow(name="browser.asks")
    def asks(flow: Flow) -> Any:
        flow.set_state("seen", 1)
        return flow.approval("Ship it?", Parcel).data

    run = asks.start({})
    going_on(run.id)
    page = viewer()
    page.goto(url_of(run.id))
    page.get_by_label("Pieces").fill("3")
    # The run changes, and the page with it.
    WorkflowRun.objects.filter(pk=run.id).update(updated_at=now() + timedelta(seconds=5), state={"seen": "changed"})
    page.locator("#pk-aside", has_text="changed").wait_for()
    assert page.get_by_label("Pieces").input_value() == "3"


def test_the_second_of_two_people_is_told(viewer: Viewer) -> None:
    @workflow(name="browser.asks")
    def asks(flow: Flow) -> Any:
        return flow.approval("Ship it?").data

    run = asks.start({})
    going_on(run.id)
    # Without a script the second page does not learn of it before.
    first, second = viewer(), viewer("narrow", "dark", javascript=False)
    first.goto(url_of(run.id))
    second.goto(url_of(run.id))
    first.get_by_role("button", name="Approve").click()
    first.get_by_text("is taken.").wait_for()
    second.get_by_role("button", name="Deny").click()
    second.get_by_text("somebody else was faster").wait_for()
    second.get_by_text("the run is about to look at it").wait_for()
    going_on(run.id)
    assert run.output is True


def test_a_failed_step_is_retried_and_forked_from_with_another_input(viewer: Viewer, picture: Picture) -> None:
    run_id = failed_order(now(), input={"order_id": "B4"}).tell()
    page = viewer("narrow", "dark")
    page.goto(url_of(run_id))
    page.get_by_role("link", name="charge card", exact=False).first.click()
    page.locator("#pk-panel-title", has_text="charge card").wait_for()
    picture(page, "panel-narrow", full_page=True)
    assert not scrolls_sideways(page)
    page.get_by_role("link", name="Retry this step").click()
    page.get_by_label("Reason").fill("funds are there")
    page.get_by_role("button", name="Retry").click()
    page.locator("#pk-head", has_text="A new try of").wait_for()
    assert "ops: funds are there" in page.locator("#pk-head").inner_text()

    page.goto(url_of(run_id))
    page.locator("#pk-aside", has_text="tried again as").wait_for()
    page.get_by_role("link", name="Fork from this step").click()
    page.get_by_text("Carried out again").wait_for()
    page.get_by_label("Reason").fill("another order")
    page.get_by_role("button", name="Fork").click()
    page.locator("#pk-head", has_text="Forked from").wait_for()
    new = WorkflowRun.objects.get(wire__forkOf=run_id)
    assert new.wire["forkFrom"] == "charge card"
    assert page.url.endswith(url_of(new.pk))


def family() -> tuple[str, str]:
    """A run with a child that has one itself."""
    at = now() - timedelta(seconds=100)
    grandchild = Story(workflow="weigh", started=at + timedelta(seconds=22), ended=10)
    grandchild.step("put on the scale", [Try(0, 1, 9)], function="scale")
    child = Story(workflow="pack_parcel", started=at + timedelta(seconds=20), ended=40)
    child.step("fold the box", [Try(0, 1, 10)], function="fold")
    child.step("weigh", [Try(2, 2, 14)], child_run_id=grandchild.tell())
    child.step("close it", [Try(14, 15, 20, error={"message": "no tape"}), Try(25, 25, 40)], function="close")
    parent = Story(status="completed", started=at, ended=80)
    parent.step("take the order", [Try(0, 1, 20)], function="take")
    parent.step("pack", [Try(20, 20.5, 60)], child_run_id=child.tell())
    parent.step("ship", [Try(60, 62, 80)], function="ship")
    return parent.tell(), child.run_id


@pytest.mark.parametrize(("width", "scheme"), [("wide", "light"), ("narrow", "dark")])
def test_child_runs_open_in_place(viewer: Viewer, picture: Picture, width: str, scheme: str) -> None:
    parent, child = family()
    page = viewer(width, scheme)
    page.goto(url_of(parent))
    toggle = page.get_by_role("button", name="Steps of the run that does pack")
    toggle.focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="fold the box").wait_for()
    assert f"open={child}" in page.url
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.get_by_role("button", name="Steps of the run that does weigh").click()
    page.get_by_role("link", name="put on the scale").wait_for()
    assert not scrolls_sideways(page)
    page.get_by_role("link", name="close it").click()
    page.locator("#pk-panel-title", has_text="close it").wait_for()
    picture(page, f"children-{width}", full_page=True)
    assert grave_faults(page) == []
    # Time is travelled in the children as well, and the server shows the same.
    events = WorkflowService().get_run_timeline(parent) or []
    begun = next(event.seq for event in events if event.step_name == "pack" and event.type == "running")
    page.locator("#pk-range").focus()
    page.keyboard.press("Home")
    for _ in range(begun + 1):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('#pk-event').textContent.includes('pack')")
    names = ("take the order", "pack", "fold the box", "close it", "put on the scale", "ship")
    then = ["succeeded", "running", "queued", "unreached", "unreached", "unreached"]
    assert [state_of(page, name) for name in names] == then
    page.reload()
    assert [state_of(page, name) for name in names] == then
    page.locator("#pk-now").click()
    page.locator("#pk-now", has_text="End").wait_for()
    page.get_by_role("button", name="Steps of the run that does pack").click()
    page.get_by_role("link", name="fold the box").wait_for(state="detached")


def test_a_graph_is_drawn_recoloured_and_walked_by_keyboard(viewer: Viewer, picture: Picture) -> None:
    @function(name="browser.step", retries=0)
    def step() -> int:
        return 1

    @function(name="browser.fails", retries=0)
    def fails() -> int:
        raise ValueError("no")

    @function(name="browser.refund", retries=0)
    def refund(error: dict[str, Any], input: dict[str, Any], invocation_id: str) -> int:
        return 1

    checkout = graph(
        "browser.checkout",
        entry="reserve",
        nodes={
            "reserve": node(step, next=["charge", "notify"]),
            "charge": node(fails, next="ship", on_error="refund"),
            "notify": node(step),
            "refund": node(refund),
            "ship": node(step),
        },
    )
    run = checkout.run({})
    for width, scheme in (("wide", "light"), ("narrow", "dark")):
        page = viewer(width, scheme)
        page.goto(url_of(run.id))
        page.locator(".pk-walk").wait_for()
        assert not scrolls_sideways(page)
        picture(page, f"graph-{width}", full_page=True)
        assert grave_faults(page) == []
    page = viewer()
    page.goto(url_of(run.id))
    states = "[...document.querySelectorAll('.pk-node')].map(node => node.dataset.state)"
    present = page.evaluate(states)
    assert sorted(present) == ["failed", "succeeded", "succeeded", "succeeded", "unreached"]
    assert page.locator(".pk-edge.pk-untaken").count() == 1
    page.locator("#pk-range").focus()
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelectorAll('.pk-node[data-state=unreached]').length === 5")
    assert page.locator(".pk-edge.pk-untaken").count() == 4
    page.keyboard.press("End")
    page.wait_for_function("!document.querySelector('.pk-in-past')")
    assert page.evaluate(states) == present
    # A node opens its step.
    page.locator(".pk-node a").nth(1).focus()
    page.keyboard.press("Enter")
    page.locator("#pk-panel-title", has_text="charge").wait_for()


def test_nobody_listens_and_the_page_says_so(viewer: Viewer, picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.workflows.listening._asked", lambda: {"celery@web-1": ["celery"]})
    monkeypatch.setattr("console.workflows.listening.CeleryDispatcher", RecordingDispatcher)
    story = Story(status="running", started=now() - timedelta(seconds=100), ended=3, options={"last_worker": "w"})
    story.step("pack", [Try(3)], function="pack", queue="scales", due=100)
    page = viewer()
    page.goto(url_of(story.tell()))
    page.get_by_text("No worker is listening on the queue scales.").wait_for()
    picture(page, "no-worker", full_page=True)


def test_a_list_renews_itself_only_while_something_goes_on(viewer: Viewer) -> None:
    run_id = order_in_flight(now()).tell()
    page = viewer()
    page.clock.install()
    page.goto(list_url())
    page.locator("body[data-following=yes]").wait_for()
    WorkflowRun.objects.filter(pk=run_id).update(status="completed")
    page.clock.run_for(6000)
    page.locator("#result_list .pk-pill", has_text="Completed").wait_for()
    page.locator("body[data-following=no]").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(120_000)
    assert asked == []


def test_a_page_prints_what_it_shows(viewer: Viewer, picture: Picture) -> None:
    page = viewer()
    page.goto(url_of(failed_order(now(), input={"order_id": "B4"}).tell()))
    page.emulate_media(media="print")
    for selector in ("#pk-tools", "#pk-travel", ".pk-operations", "#header"):
        assert not page.locator(selector).first.is_visible(), selector
    for selector in ("#pk-lanes", "#pk-panel", "#pk-head", "#pk-aside"):
        assert page.locator(selector).is_visible(), selector
    picture(page, "printed", full_page=True)
