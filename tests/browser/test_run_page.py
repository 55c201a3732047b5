"""The page of a run in a real browser: steps open, time is travelled, a live run is followed to its end."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.workflows.service import WorkflowService
from tests.console.stories import Story, Try, failed_order, now, order_in_flight, sleeping_order
from tests.console.urls import list_url, url_of

pytestmark = [pytest.mark.django_db(transaction=True)]
Viewer = Callable[..., Any]
Picture = Callable[..., Any]

SIZES = [("wide", "light"), ("wide", "dark"), ("narrow", "light"), ("narrow", "dark")]


def state_of(page: Any, name: str) -> str:
    """The state of the lane of that name."""
    lane = page.locator(".pk-lane[data-state]").filter(has=page.get_by_text(name, exact=True))
    state: str = lane.get_attribute("data-state")
    return state


def scrolls_sideways(page: Any) -> bool:
    """Whether the page is wider than the window."""
    wider: bool = page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1")
    return wider


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_every_kind_of_run_on_every_screen(viewer: Viewer, picture: Picture, width: str, scheme: str) -> None:
    at = now()
    runs = {
        "in-flight": order_in_flight(at - timedelta(seconds=470)).tell(),
        "failed": failed_order(at - timedelta(seconds=60)).tell(),
        "sleeping": sleeping_order(at - timedelta(seconds=900)).tell(),
        "empty": Story(
            status="cancelled", options={"error": {"message": "not wanted", "code": "WORKFLOW_CANCELLED"}}
        ).tell(),
    }
    page = viewer(width, scheme)
    for name, run_id in runs.items():
        page.goto(url_of(run_id))
        assert not scrolls_sideways(page), name
        assert picture(page, f"{name}-{width}-{scheme}", full_page=True)


def test_a_step_opens_in_place(viewer: Viewer) -> None:
    story = order_in_flight(now() - timedelta(seconds=470))
    run_id = story.tell()
    page = viewer()
    page.goto(url_of(run_id))
    # What waits is opened by itself.
    assert page.locator("#pk-panel-title").inner_text() == "book parcel"
    page.get_by_role("link", name="charge card").click()
    page.locator("#pk-panel-title", has_text="charge card").wait_for()
    panel = page.locator("#pk-panel")
    assert "pay_01HF7Q" in panel.inner_text()
    assert f"step={story.steps[1].pk}" in page.url
    assert page.evaluate("document.activeElement.id") == "pk-panel"
    traceback = panel.locator("details[data-keep]").first
    assert not traceback.locator("pre").is_visible()
    traceback.locator("summary").click()
    assert "insufficient funds" in traceback.locator("pre").inner_text()
    page.reload()
    assert page.locator("#pk-panel-title").inner_text() == "charge card"


def test_payloads_and_ids_are_copied(viewer: Viewer) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    page = viewer()
    page.goto(url_of(run_id))
    page.get_by_role("button", name="Copy the id").click()
    page.get_by_text("copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == run_id
    page.locator("#pk-aside").get_by_role("link", name="copy").last.click()
    page.locator("#pk-aside").get_by_text("copied").wait_for()
    assert '"TEA-SENCHA-100"' in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_travel_in_time(viewer: Viewer, picture: Picture, width: str) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    events = WorkflowService().get_run_timeline(run_id) or []
    failed = next(event.seq for event in events if event.type == "failed")
    page = viewer(width)
    page.goto(url_of(run_id))
    page.locator("#pk-previous").click()
    page.locator("#pk-now", has_text="Past").wait_for()
    assert page.locator("#pk-position").inner_text() == str(len(events) - 1)
    # By keyboard to the first failure.
    page.locator("#pk-range").focus()
    page.keyboard.press("Home")
    assert page.locator("#pk-event").inner_text() == "before the first event"
    assert state_of(page, "reserve stock") == "unreached"
    for _ in range(failed + 1):
        page.keyboard.press("ArrowRight")
    assert re.search(r"charge card failed · attempt 1", page.locator("#pk-event").inner_text())
    assert (state_of(page, "reserve stock"), state_of(page, "charge card")) == ("succeeded", "failed")
    assert (state_of(page, "pack"), state_of(page, "book parcel")) == ("unreached", "unreached")
    assert page.locator("#pk-veil").is_visible()
    assert f"at={failed + 1}" in page.url
    assert page.locator("#pk-position").inner_text() == str(failed + 1)
    # What is not of that moment says so.
    for part in ("#pk-head", "#pk-panel", "#pk-aside"):
        assert page.locator(part).get_by_text("as it is now").first.is_visible()
    picture(page, f"travel-{width}", full_page=True)
    # The server shows the same past to whoever is sent the address.
    states = page.evaluate("[...document.querySelectorAll('.pk-lane[data-state]')].map(lane => lane.dataset.state)")
    page.reload()
    assert states == page.evaluate(
        "[...document.querySelectorAll('.pk-lane[data-state]')].map(lane => lane.dataset.state)"
    )
    # And back to the present.
    page.locator("#pk-now").click()
    page.locator("#pk-now", has_text="Live").wait_for()
    page.locator('.pk-lane[data-state="waiting"]', has_text="book parcel").wait_for()
    assert state_of(page, "charge card") == "succeeded"
    assert not page.locator("#pk-veil").is_visible()
    assert not page.get_by_text("as it is now").first.is_visible()


def test_travel_by_pointer(viewer: Viewer) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    page = viewer()
    page.goto(url_of(run_id))
    page.locator("#pk-slider").scroll_into_view_if_needed()
    box = page.locator("#pk-slider svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.locator("#pk-now", has_text="Past").wait_for()
    page.mouse.move(box["x"] + box["width"] * 0.13, box["y"] + 20, steps=5)
    page.mouse.up()
    page.wait_for_function("document.querySelector('#pk-event').textContent.includes('charge card')")
    assert state_of(page, "pack") == "unreached"
    page.mouse.click(box["x"] + box["width"], box["y"] + 20)
    page.locator("#pk-now", has_text="Live").wait_for()


def test_lanes_are_filtered_in_place(viewer: Viewer) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    page = viewer()
    page.goto(url_of(run_id))
    page.get_by_label("Find steps by name or function").fill("pack[2")
    page.wait_for_function("document.querySelectorAll('.pk-lane[data-step]').length === 1")
    assert "name=pack%5B2" in page.url
    page.get_by_label("Find steps by name or function").fill("")
    page.get_by_label("Show steps that are").select_option("waiting")
    page.wait_for_function("document.querySelectorAll('.pk-lane[data-state]').length === 1")
    page.get_by_label("Show steps that are").select_option("")
    page.get_by_label("hide idle time").check()
    page.locator(".pk-fold").first.wait_for(state="attached")


def test_a_fan_out_folds_by_keyboard(viewer: Viewer) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    page = viewer()
    page.goto(url_of(run_id))
    group = page.locator("details.pk-group")
    assert page.get_by_role("link", name="pack[1]").is_visible()
    group.locator("summary").focus()
    page.keyboard.press("Enter")
    assert not page.get_by_role("link", name="pack[1]").is_visible()


def test_a_live_run_is_followed_to_its_end(viewer: Viewer) -> None:
    service = WorkflowService()
    run_id = service.create_run("fulfil_order", {"order_id": "A17"})
    page = viewer()
    page.goto(url_of(run_id))
    page.get_by_text("No step yet").wait_for()
    step = service.insert_step_state(run_id, "charge card", "charge_card", {"amount": 4200}, retries=2)
    page.locator('.pk-lane[data-state="queued"]').wait_for()
    page.get_by_role("link", name="charge card").click()
    page.wait_for_function("document.activeElement.id === 'pk-panel'")
    page.get_by_role("link", name="charge card").focus()
    service.set_step_running(step.step_id)
    page.locator('.pk-lane[data-state="running"]').wait_for()
    service.set_step_error(step.step_id, {"message": "declined", "code": "E_FUNDS"})
    page.locator("#pk-panel", has_text="E_FUNDS").wait_for()
    service.create_retry_attempt(step.step_id, "running")
    page.locator('.pk-lane[data-state="running"]', has_text="attempt 2").wait_for()
    # Whoever reads by keyboard is not thrown out of his place.
    assert page.evaluate("document.activeElement.className") == "pk-label"
    service.set_step_result(step.step_id, {"payment": "pay_1"})
    page.locator('.pk-lane[data-state="succeeded"]').wait_for()
    service.update_run_status(run_id, "completed", {"outcome": "shipped"})
    page.locator("#pk-head .pk-pill", has_text="Completed").wait_for()
    page.locator("#pk-aside", has_text="shipped").wait_for()
    # And then it is left alone.
    assert page.locator(".pk-run").get_attribute("data-following") == "no"
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/static/" not in request.url else None)
    page.wait_for_timeout(2500)
    assert asked == []


def test_an_ended_run_is_not_asked_about(viewer: Viewer) -> None:
    page = viewer()
    page.goto(url_of(failed_order(now()).tell()))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/static/" not in request.url else None)
    page.wait_for_timeout(1500)
    assert asked == []


def test_without_a_script_everything_is_reachable(viewer: Viewer) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    page = viewer(javascript=False)
    page.goto(url_of(run_id))
    page.get_by_role("link", name="charge card").click()
    assert page.locator("#pk-panel-title").inner_text() == "charge card"
    page.locator("#pk-previous").click()
    assert page.locator("#pk-now").inner_text().endswith("Past")
    page.locator("#pk-now").click()
    page.get_by_label("Find steps by name or function").fill("reserve")
    page.get_by_role("button", name="Apply").click()
    assert page.locator(".pk-lane[data-step]").count() == 1


def test_thousands_of_steps_do_not_freeze_the_page(viewer: Viewer) -> None:
    story = Story(status="running", started=now() - timedelta(seconds=4000), ended=3000)
    for index in range(2000):
        story.step(f"step {index}", [Try(index, index, index + 1)], function="work")
    for index in range(1300):
        story.step(f"pack[{index}]", [Try(2000, 2001, 2002 + index / 2)], function="work", group="pack")
    story.step("last", [Try(2700, 2701)], function="work")
    run_id = story.tell()
    page = viewer()
    page.goto(url_of(run_id))
    page.locator("#pk-range").focus()
    page.keyboard.press("Home")
    page.locator("#pk-event", has_text="before the first event").wait_for(timeout=30_000)
    # The median of a few, since other programs use the processor too.
    took = page.evaluate(
        """async () => {
            const range = document.querySelector("#pk-range");
            const took = [];
            for (let seq = 0; seq < 11; seq += 1) {
                const start = performance.now();
                range.value = String(seq * 900);
                range.dispatchEvent(new Event("input", { bubbles: true }));
                await new Promise(requestAnimationFrame);
                took.push(performance.now() - start);
            }
            return took.sort((one, other) => one - other)[5];
        }"""
    )
    assert took < 150


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_empty_list_is_a_quiet_card(viewer: Viewer, picture: Picture, scheme: str) -> None:
    page = viewer("wide", scheme)
    for model in ("workflowrun", "workflowstep", "workflowstephistory", "workflowversion"):
        page.goto(f"{list_url(model)}?q=zzz")
        picture(page, f"empty-{model}-{scheme}")
        style = page.locator(".pk-empty h2").evaluate(
            "(heading) => [getComputedStyle(heading).backgroundColor, getComputedStyle(heading).textAlign]"
        )
        assert style == ["rgba(0, 0, 0, 0)", "center"]


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_a_short_failure_is_seen(viewer: Viewer, picture: Picture, width: str) -> None:
    story = Story(started=now() - timedelta(seconds=60))
    story.step("ship", [Try(0, 0.001, 0.003, error={"message": "no"}), Try(30, 30, 30.002)], function="ship")
    page = viewer(width)
    page.goto(url_of(story.tell()))
    picture(page, f"short-{width}")
    bar = page.locator(".pk-plot .pk-bar-failed")
    # A point outside of the window has no element.
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    assert box["width"] >= 3
    over = page.evaluate(
        "([x, y]) => document.elementFromPoint(x, y).getAttribute('class')",
        [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2],
    )
    assert "pk-bar-failed" in over


def test_lists_in_a_browser(viewer: Viewer, picture: Picture) -> None:
    at = now()
    order_in_flight(at - timedelta(seconds=470)).tell()
    failed_order(at - timedelta(minutes=20)).tell()
    for width, scheme in SIZES:
        page = viewer(width, scheme)
        page.goto(list_url())
        assert not scrolls_sideways(page)
        picture(page, f"list-{width}-{scheme}", full_page=True)
    page = viewer()
    page.goto(list_url())
    page.locator(".pk-menu summary", has_text="Started").click()
    page.get_by_role("link", name="Last hour").wait_for()
    page.keyboard.press("Escape")
    assert not page.get_by_role("link", name="Last hour").is_visible()
    page.get_by_role("link", name="Failed").click()
    page.wait_for_url("**status=failed*")
    page.locator("#result_list tbody tr").first.wait_for()
    assert page.locator("#result_list tbody tr").count() == 1
    for model in ("workflowstep", "workflowstephistory", "workflowversion"):
        page.goto(list_url(model))
        picture(page, model)
