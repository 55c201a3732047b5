"""The demo's child processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from example_project.orders.demo.processes import Process

ROOT = Path(__file__).resolve().parents[2]
STARTS_A_PROCESS = """
import pathlib, sys, time
from example_project.orders.demo.processes import Process
here = pathlib.Path(sys.argv[1])
child = Process("child", [sys.executable, "-c", "import time; time.sleep(60)"], log=here / "log", cwd=here)
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""
FORKS_A_CHILD = "import os, time; print(os.fork(), flush=True); time.sleep(60)"


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process("sleeper", [sys.executable, "-c", FORKS_A_CHILD], log=tmp_path / "log", cwd=tmp_path)


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")")[1].split()[0] != "Z"


def wait_until(condition: object, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def grandchild(log: Path) -> int:
    wait_until(lambda: log.exists() and "\n" in log.read_text())
    return max(int(word) for word in log.read_text().split())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_stopping_ends_the_process_and_what_it_forked(process: Process, tmp_path: Path) -> None:
    process.start()
    child = grandchild(tmp_path / "log")

    process.stop()

    assert process.ended() == -signal.SIGTERM
    wait_until(lambda: not alive(child))


@pytest.mark.skipif(sys.platform != "linux", reason="uses the parent-death signal")
def test_a_child_does_not_outlive_a_demo_that_was_killed(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_PROCESS, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with demo:
        assert demo.stdout
        child = int(demo.stdout.readline())
        assert alive(child)

        demo.kill()

        wait_until(lambda: not alive(child))
