"""How the run's page shows that a person is waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from console.workflows import reads
from console.workflows.banners import Banner, banner_of
from console.workflows.states import State
from console.workflows.timeline import Lane, at_moment, build_timeline
from pikku_storage.db import engine
from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.timeline import reconstruct_state_at

pytestmark = pytest.mark.django_db(transaction=True)

USING = WorkflowRun.objects.db


@pytest.fixture(autouse=True)
def _alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker, and definitions that are gone after the test."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DISPATCHER": None}
    monkeypatch.setattr(registry, "workflows", dict(registry.workflows))


def asking(**options: Any) -> WorkflowRunHandle:
    @workflow(name="gates.shown")
    def order(flow: Flow) -> None:
        flow.approval("release", **options)

    return order.run()


def shown(run: WorkflowRunHandle, *, after: timedelta = timedelta()) -> tuple[Lane, Banner | None, Lane]:
    """The gate's lane and the banner, and the lane as it is when its first event is chosen."""
    row = reads.read_run(WorkflowRun.objects.all(), run.id)
    assert row is not None
    steps, attempts = reads.read_steps(USING, [run.id])[run.id], reads.read_attempts(USING, [run.id])
    now = engine(USING).now() + after
    timeline = build_timeline(row, steps, attempts, now=now)
    (lane,) = timeline.lanes
    past = at_moment(lane, reconstruct_state_at(timeline.events, 1))
    return lane, banner_of(row, steps, timeline, now=now), past


def test_an_open_approval_is_a_bar_that_waits() -> None:
    lane, banner, past = shown(asking(expiry="2h", approvers="not-initiator"), after=timedelta(hours=1))
    assert (lane.state, past.state, lane.function) == (State.WAITING, State.WAITING, "approval")
    (bar,) = lane.bars
    assert (bar.kind, bar.is_busy) == ("waiting", False)
    assert "waits for a person" in bar.title
    assert lane.note.startswith("waits for a person · ")
    assert lane.note.endswith(" left")
    assert banner is not None
    assert banner.kind == "waiting"
    assert "Waiting for an answer to <b>release</b>, asked" in banner.text
    assert "Anybody signed in may answer but who started the run. It expires" in banner.hint


@pytest.mark.parametrize(("approvers", "hint"), [("any", "Anybody may answer."), ("owner", "Its owner may answer.")])
def test_an_approval_without_an_end_says_who_may_answer(approvers: str, hint: str) -> None:
    lane, banner, _ = shown(asking(approvers=approvers))
    assert banner is not None
    assert banner.hint == hint
    assert lane.note == "waits for a person"


def test_an_answered_approval_says_how_long_it_took() -> None:
    run = asking()
    run.approve("release", True)
    lane, banner, _ = shown(run)
    assert (lane.state, banner) == (State.SUCCEEDED, None)
    assert lane.note.startswith("waited ")


def test_an_approval_that_was_cancelled_was_not_answered() -> None:
    run = asking()
    run.cancel()
    lane, _, _ = shown(run)
    assert (lane.state, lane.note) == (State.FAILED, "not answered")


def test_a_suspension_waits_to_be_resumed() -> None:
    @workflow(name="gates.suspended")
    def order(flow: Flow) -> None:
        flow.suspend("look at it")

    lane, banner, _ = shown(order.run())
    assert (lane.state, lane.function, lane.note) == (State.WAITING, "suspension", "waits for a person")
    assert banner is not None
    assert banner.text == "Waiting to be resumed. look at it"


def test_the_page_shows_it(admin_client: Client) -> None:
    run = asking()
    page = admin_client.get(f"/admin/pikku_workflows/workflowrun/{run.id}/change/").content.decode()
    assert "Waiting for an answer to <b>release</b>" in page
    assert "waits for a person" in page
