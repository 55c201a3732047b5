"""Workflows whose steps leave traces: each call of a function is a row, so that a step run twice shows."""

import os
import time

from django.contrib.auth.models import Group

from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.flow import Flow

SEPARATOR = "|"


def leave_trace() -> None:
    """One row per call: `<step name>|<invocation id>|<attempt>`; the name is unique, so the same attempt twice is an
    error."""
    step = current_step()
    Group.objects.create(name=SEPARATOR.join((step.step_name[:60], step.invocation_id, str(step.attempt))))


def traces() -> list[tuple[str, str, int]]:
    """Step name, invocation id and attempt of every call so far."""
    rows = [name.split(SEPARATOR) for name in Group.objects.values_list("name", flat=True)]
    return [(name, invocation, int(attempt)) for name, invocation, attempt in rows]


@function(name="it.here", retries=3, retry_delay="100ms")
def here(number: int) -> int:
    leave_trace()
    return number + 1


@function(name="it.away", queued=True, retries=3, retry_delay="100ms")
def away(number: int) -> int:
    leave_trace()
    return number * 10


@function(name="it.flaky", queued=True, retries=3, retry_delay="200ms")
def flaky(number: int) -> int:
    leave_trace()
    if current_step().attempt < 3:
        raise ConnectionError("the courier hung up")
    return number


@function(name="it.deadly", retries=3, retry_delay="100ms")
def deadly(how: str) -> str:
    """Takes its whole process down in its first attempt."""
    leave_trace()
    if current_step().attempt == 1:
        if how == "hang":
            time.sleep(600)
        os._exit(1)
    return f"alive in attempt {current_step().attempt}"


@function(name="it.slow", queued=True, retries=0)
def slow(seconds: float) -> float:
    """Outlives its lease several times, if asked to."""
    time.sleep(seconds)
    return seconds


@workflow(name="it.everything")
def everything(flow: Flow, number: int, width: int) -> dict[str, object]:
    first = flow.do("first", here, {"number": number})
    spread = flow.map("spread", away, [{"number": index} for index in range(width)])
    flow.sleep("nap", "300ms")
    shaky = flow.do("shaky", flaky, {"number": first})
    both = flow.gather(("left", here, {"number": 1}), ("right", away, {"number": 2}))
    flow.set_state("done", True)
    return {"first": first, "spread": spread, "shaky": shaky, "both": both}


@workflow(name="it.survivor")
def survivor(flow: Flow, how: str) -> str:
    flow.do("before", here, {"number": 1})
    answer = flow.do("deadly", deadly, {"how": how})
    flow.do("after", here, {"number": 2})
    return answer


@workflow(name="it.patient")
def patient(flow: Flow, seconds: float) -> float:
    return flow.do("slow", slow, {"seconds": seconds})
