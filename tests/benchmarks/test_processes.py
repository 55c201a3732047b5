"""Worker processes are always ended."""

import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.processes import WorkerError, Workers
from benchmarks.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def is_running(pid: int) -> bool:
    """Whether the process exists and is more than a zombie that waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path / "workers.log")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_that_ignores_sigterm_is_killed_with_its_children(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.processes._GRACE", 0.2)
    workers.start(["-c", STUBBORN])
    log = tmp_path / "workers.log"
    wait_until(lambda: log.read_text().endswith("\n"), workers=workers)
    pids = [*workers.pids, int(log.read_text())]
    workers.stop()
    assert workers.pids == []
    wait_until(lambda: not any(map(is_running, pids)))


def test_a_paused_worker_can_be_stopped(workers: Workers) -> None:
    workers.start(["-c", "import time; time.sleep(60)"])
    workers.pause()
    begun = time.monotonic()
    workers.stop()
    assert time.monotonic() - begun < 5


def test_a_worker_that_ended_is_reported_with_the_end_of_its_log(workers: Workers) -> None:
    workers.start(["-c", "raise SystemExit('no such queue')"])

    def never() -> bool:
        workers.check()
        return False

    with pytest.raises(WorkerError, match=r"exit code 1.*\n.*no such queue"):
        wait_until(never)
    workers.stop()
