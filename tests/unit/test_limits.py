"""What may be declared as flow control, and what becomes of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import current_app
from hypothesis import given
from hypothesis import strategies as st
from pytest_django.fixtures import Settings

from pikku_storage.exceptions import WorkflowRegistrationError
from pikku_storage.workflows import Limits, workflow
from pikku_storage.workflows.dispatch import CeleryDispatcher, Message, priority_at
from pikku_storage.workflows.engine.admission import _free_numbers
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.limits import RateLimit, check_priority, deadline_of

AT = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "starts", "period"),
    [("100/1m", 100, timedelta(minutes=1)), ("5/s", 5, timedelta(seconds=1)), ("7/10min", 7, timedelta(minutes=10))],
)
def test_a_rate_limit_is_a_number_and_a_period(text: str, starts: int, period: timedelta) -> None:
    assert RateLimit.of(text) == RateLimit(starts, period, text)


@pytest.mark.parametrize("text", ["", "5", "/m", "0/m", "1001/m", "-1/m", "1.5/m", "5/0s", "5/parsec", "5/", 5, None])
def test_what_is_no_rate_limit_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"rate limit|Invalid duration"):
        RateLimit.of(text)


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 10_001},
        {"concurrency_per_key": 1},
        {"rate_limit": "often"},
        {"concurrency_key": "tenant"},
    ],
    ids=str,
)
def test_limits_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        Limits(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": {"concurrency": 1}}, "limits is a Limits"),
        ({"priority": 10}, "a priority is a whole number from 1"),
        ({"deadline": 0}, "a deadline of 0 leaves no time"),
        ({"priority": lambda customer: 1}, "asks for 'customer', which is no parameter"),
        ({"priority": lambda *numbers: 1}, "takes keyword arguments"),
    ],
)
def test_a_workflow_with_such_options_is_not_registered(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkflowRegistrationError, match=message):

        @workflow(name="unit.refused", **options)
        def refused(flow: Flow, number: int) -> None: ...


@pytest.mark.parametrize("priority", [0, 10, True, "5", None])
def test_what_is_no_priority_is_refused(priority: Any) -> None:
    with pytest.raises(ValueError, match="a priority is"):
        check_priority(priority)


def test_a_deadline_is_kept_in_utc() -> None:
    assert deadline_of("1h", AT) == AT + timedelta(hours=1)
    assert deadline_of(AT, AT + timedelta(days=1)) == AT


@pytest.mark.parametrize(("broker", "first", "middle", "last"), [("redis", 0, 4, 8), ("amqp", 9, 5, 1)])
def test_a_priority_is_said_on_the_scale_of_the_broker(broker: str, first: int, middle: int, last: int) -> None:
    assert [priority_at(broker, priority) for priority in (9, None, 1)] == [first, middle, last]


@pytest.mark.parametrize("priorities", [False, True])
def test_messages_carry_it_if_the_project_wants_that(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, priorities: bool
) -> None:
    from pikku_storage.workflows import tasks

    settings.PIKKU_STORAGE = {"MESSAGE_PRIORITIES": priorities}
    sent: list[Any] = []
    monkeypatch.setattr(tasks.orchestrate, "apply_async", lambda args, **options: sent.append(options.get("priority")))
    assert current_app.connection().transport.driver_type != "redis"
    CeleryDispatcher().send([Message(run_id="a", priority=8), Message(run_id="b")])
    assert sent == ([8, 5] if priorities else [None, None])


@given(st.sets(st.integers(0, 12)), st.integers(1, 10), st.data())
def test_slots_are_never_more_than_the_limit_whoever_reads_when(held: set[int], limit: int, data: Any) -> None:
    """Some read, some give back, some take what they read earlier: once it has drained it stays within the limit."""
    most = max(limit, len(held))
    read: list[list[int]] = []
    for _ in range(12):
        match data.draw(st.sampled_from(["read", "give back", "take"])):
            case "read":
                read.append(_free_numbers(sorted(held), limit))
            case "give back" if held:
                held.discard(data.draw(st.sampled_from(sorted(held))))
            case "take" if read:
                free = data.draw(st.sampled_from(read))
                # A number that is held is not taken: its row is there.
                if free and (number := data.draw(st.sampled_from(free))) not in held:
                    held.add(number)
                    assert len(held) <= limit
        assert len(held) <= most
        most = max(limit, len(held))
