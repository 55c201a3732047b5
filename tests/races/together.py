"""Threads and processes that begin at the same moment."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Barrier
from typing import Any, TypeVar

from django.db import connections

T = TypeVar("T")
THREADS = 12


def together(*actions: Callable[[], T]) -> list[T]:
    """Carry the actions out in threads, one each; what they answered."""
    barrier = Barrier(len(actions))

    def one(action: Callable[[], T]) -> T:
        try:
            barrier.wait(30)
            return action()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result() for future in [pool.submit(one, action) for action in actions]]


def in_threads(action: Callable[[int], T], threads: int = THREADS) -> list[T]:
    """Carry out `action(index)` in so many threads."""
    return together(*[partial(action, index) for index in range(threads)])


@contextmanager
def processes(
    module: str, arguments: Sequence[Sequence[str]], env: dict[str, str]
) -> Iterator[list[subprocess.Popen[str]]]:
    """`python -m module …` once for each list of arguments: all have begun, and all are gone after the block."""
    with ExitStack() as stack:
        begun = []
        for each in arguments:
            command = [sys.executable, "-m", module, *each]
            process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            begun.append(process)
        for process in begun:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in begun:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield begun


def answers_of_processes(module: str, arguments: Sequence[Sequence[str]], env: dict[str, str]) -> list[Any]:
    """What each of them prints as JSON before it ends."""
    with processes(module, arguments, env) as begun:
        return [json.loads(process.communicate(timeout=120)[0]) for process in begun]


def wait_for_the_word() -> None:
    """In such a process: say that it is ready, and wait until all are."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
