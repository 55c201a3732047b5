"""The sentence over the run's page."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from console.workflows import reads
from console.workflows.banners import Banner, banner_of
from console.workflows.timeline import build_timeline
from pikku_storage.ids import child_run_id
from pikku_storage.workflows.models import WorkflowRun
from tests.console.stories import Story, Try, failed_order, now, order_in_flight, sleeping_order

pytestmark = pytest.mark.django_db


def banner(story: Story, after: float, **changes: Any) -> Banner | None:
    run_id = story.tell()
    run = reads.read_run(WorkflowRun.objects.all(), run_id)
    assert run is not None
    run = replace(run, **changes)
    steps, attempts = reads.read_steps("default", [run_id])[run_id], reads.read_attempts("default", [run_id])
    moment = story.at(after)
    return banner_of(run, steps, build_timeline(run, steps, attempts, now=moment), now=moment)


def test_sleeping_says_until_when() -> None:
    found = banner(sleeping_order(now()), 600)
    assert found is not None
    assert "Sleeping in <b>cool down</b> until" in found.text
    assert "(in 50 m 00 s)" in found.text
    assert (found.kind, found.hint) == ("waiting", "")


def test_a_sleep_nobody_ends_hints_at_the_relay() -> None:
    found = banner(sleeping_order(now()), 3700)
    assert found is not None
    assert "the relay" in found.hint


def test_a_retry_says_when_and_which() -> None:
    found = banner(order_in_flight(now()), 500)
    assert found is not None
    assert "<b>book parcel</b> failed; attempt 3 of 6 is due" in found.text


def test_queued_steps_are_counted() -> None:
    story = Story(status="running", ended=1)
    story.step("a", [Try(0)], function="f", queue="slow").step("b", [Try(1)], function="f", queue="slow")
    found = banner(story, 100)
    assert found is not None
    assert "Waiting for workers to take 2 queued steps; the oldest is <b>a</b>" in found.text
    assert "slow" in found.hint


def test_nothing_to_say_while_a_step_runs() -> None:
    assert banner(Story(status="running", ended=1).step("a", [Try(0, 1)]), 2) is None


@pytest.mark.parametrize("children", [1, 2])
def test_a_run_that_waits_for_children_says_so(children: int) -> None:
    story = Story(status="running", ended=1)
    for number in range(children):
        step_id = f"step-{story.run_id}-{number}"
        story.step(f"ship {number}", [Try(0, 1)], id=step_id, child_run_id=child_run_id(step_id, 1))
    found = banner(story, 2)
    assert found is not None
    assert (
        found.text
        == {
            1: "Waiting for the run that does <b>ship 0</b>.",
            2: "Waiting for 2 runs, the first of them does <b>ship 0</b>.",
        }[children]
    )


def test_nothing_to_say_while_a_step_runs_beside_a_child() -> None:
    story = Story(status="running", ended=1)
    story.step("ship", [Try(0, 1)], id="step-1", child_run_id=child_run_id("step-1", 1)).step("bill", [Try(0, 1)])
    assert banner(story, 2) is None


def test_a_run_that_nobody_took() -> None:
    found = banner(Story(status="running", ended=0, options={"due_at": now(), "inline": False}), 120)
    assert found is not None
    assert "No worker has taken this run yet" in found.text
    assert "Celery worker" in found.hint


def test_failed_and_cancelled_say_why() -> None:
    failed = banner(failed_order(now()), 40)
    assert failed is not None
    assert (failed.kind, failed.code) == ("failed", "E_FUNDS")
    assert failed.text == "Failed in <b>charge card</b> with <b>WorkflowStepFailedError</b>: insufficient funds"
    cancelled = banner(Story(status="cancelled", options={"error": {"message": "changed <b>my</b> mind"}}), 70)
    assert cancelled is not None
    assert cancelled.kind == "quiet"
    assert "changed &lt;b&gt;my&lt;/b&gt; mind" in cancelled.text


@pytest.mark.parametrize(
    ("error", "begins"),
    [
        ({"code": "RPC_NOT_FOUND", "message": "No function 'x'"}, "Waiting on a missing function: No function"),
        ({"code": "WORKFLOW_NOT_FOUND", "message": "No workflow 'x'"}, "Waiting on a missing workflow: No workflow"),
        ({"code": "VERSION_CONFLICT", "message": "step x"}, "Today's code does not fit this run: step x"),
        ({"code": "WORKFLOW_SUSPENDED", "message": "by hand"}, "Waiting to be resumed. by hand"),
        (None, "Waiting to be resumed."),
        ("a text of another program", "Waiting to be resumed. a text of another program"),
    ],
)
def test_suspended_is_a_reason_and_not_a_failure(error: Any, begins: str) -> None:
    found = banner(Story(status="suspended", options={"error": error}), 70)
    assert found is not None
    assert found.kind == "waiting"
    assert found.text.startswith(begins)


def test_completed_needs_no_banner() -> None:
    assert banner(Story(), 70 + timedelta(0).seconds) is None


@pytest.mark.parametrize("kind", ["concurrency", "rate_limit", "paused"])
def test_a_run_that_is_not_let_in_says_why(kind: str) -> None:
    story = Story(status="running", ended=1)
    since = story.at(0).isoformat()
    found = banner(story, 30, waits_for={"kind": kind, "text": "At most 2 <runs> may be inside", "since": since})
    assert found is not None
    assert found.text == "Waiting to be let in: At most 2 &lt;runs&gt; may be inside. Lined up 30 s ago."
