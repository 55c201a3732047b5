"""The workflows that are timed. A step adds one, so that what is measured is the engine."""

import time

from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.flow import Flow


@function
def add_one(number: int) -> int:
    """A step that runs where its run runs."""
    return number + 1


@function(queued=True)
def add_one_queued(number: int) -> int:
    """The same with a message of its own for each step."""
    return number + 1


@workflow
def chain(flow: Flow, steps: int) -> int:
    """Steps one after the other."""
    number = 0
    for index in range(steps):
        number = flow.do(f"step {index}", add_one, {"number": number})
    return number


@workflow
def queued_chain(flow: Flow, steps: int) -> int:
    """Steps one after the other, each one handed to the broker."""
    number = 0
    for index in range(steps):
        number = flow.do(f"step {index}", add_one_queued, {"number": number})
    return number


@workflow
def fan_out(flow: Flow, steps: int) -> int:
    """Steps side by side, and the sum of their results."""
    return sum(flow.map("add", add_one, [{"number": index} for index in range(steps)]))


stamps: list[float] = []
"""When each step of `stamped_chain` was over, in seconds."""


@workflow
def stamped_chain(flow: Flow, steps: int) -> None:
    """A chain that notes the time after each step."""
    stamps.clear()
    for index in range(steps):
        flow.do(f"step {index}", add_one, {"number": index})
        stamps.append(time.perf_counter())
