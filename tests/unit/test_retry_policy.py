"""How often and how soon a failed step is tried again, and a run is driven again."""

from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.retry import RetryPolicy
from pikku_storage.workflows.engine.backoff import delay_of
from tests.data.vectors import load, vectors


def _policy(options: dict[str, Any] | None) -> RetryPolicy:
    options = options or {}
    return RetryPolicy.of(options.get("retries"), options.get("retryDelay"))


@pytest.mark.parametrize("vector", vectors("step-job-options"), ids=lambda vector: str(vector["options"]))
def test_options_mean_what_the_contract_says(vector: dict[str, Any]) -> None:
    policy = _policy(vector["options"])
    backoff = vector["job"].get("backoff")

    assert policy.max_attempts == vector["job"]["attempts"]
    if backoff == "exponential":
        assert policy.fixed_delay_ms is None
    elif backoff is not None:
        assert policy.fixed_delay_ms == backoff["delay"]
        assert policy.delay_after(1) == policy.delay_after(4) == timedelta(milliseconds=backoff["delay"])


@pytest.mark.contract("RP-01")
def test_without_options_there_are_six_attempts_with_exponential_delays() -> None:
    policy = RetryPolicy.of(None, None)

    assert policy.max_attempts == 6
    assert [policy.delay_after(attempt).total_seconds() for attempt in range(1, 6)] == [1, 2, 4, 8, 16]


@pytest.mark.contract("RP-02")
def test_no_retries_give_one_attempt() -> None:
    assert RetryPolicy.of(0, None).max_attempts == 1


@pytest.mark.contract("RP-03")
@pytest.mark.parametrize(("retries", "attempts"), [(1, 2), (2, 3), (3, 4), (7, 8)])
def test_retries_are_extra_attempts(retries: int, attempts: int) -> None:
    assert RetryPolicy.of(retries, None).max_attempts == attempts


@pytest.mark.contract("RP-04")
def test_a_number_is_a_fixed_delay_in_milliseconds() -> None:
    policy = RetryPolicy.of(2, 1500)

    assert policy.delay == "1500"
    assert [policy.delay_after(attempt) for attempt in (1, 2, 3)] == [timedelta(seconds=1.5)] * 3


@pytest.mark.contract("RP-05")
def test_a_text_is_a_fixed_delay() -> None:
    policy = RetryPolicy.of(2, "15s")

    assert policy.delay == "15s"
    assert policy.fixed_delay_ms == 15_000


def test_a_timedelta_is_a_fixed_delay() -> None:
    assert RetryPolicy.of(2, timedelta(seconds=3)).delay == "3000"


@pytest.mark.contract("RP-06")
def test_exponential_delays_double_from_a_second_to_ten_minutes() -> None:
    policy = RetryPolicy.of(20, "exponential")

    seconds = [policy.delay_after(attempt).total_seconds() for attempt in range(1, 13)]
    assert seconds == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert policy.delay_after(5_000) == timedelta(minutes=10)


@pytest.mark.parametrize("retries", [-1, 1.0, "3", True], ids=repr)
def test_what_is_no_number_of_retries_is_refused(retries: Any) -> None:
    with pytest.raises(ValueError, match="retries must be a whole number of at least 0"):
        RetryPolicy.of(retries, None)


@pytest.mark.parametrize("delay", ["soon", "", "1.5s", -1, float("nan")], ids=repr)
def test_what_is_no_delay_is_refused(delay: Any) -> None:
    with pytest.raises(ValueError, match="Invalid duration"):
        RetryPolicy.of(None, delay)


def test_a_run_driven_again_is_left_alone_for_as_long_as_the_contract_says() -> None:
    expected = load("redispatch-backoff")["sequenceMs"]

    assert [delay_of(times) / timedelta(milliseconds=1) for times in range(len(expected))] == expected
    assert delay_of(10**6) == timedelta(minutes=10)
    assert delay_of(-1) == timedelta(seconds=30)
