"""Worker processes: begun, told apart by pid, and always ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_GRACE = 5.0
"""Seconds that a worker has to end by itself."""


class WorkerError(Exception):
    """A worker ended by itself. The text has the end of its log."""


class Workers:
    """The worker processes of one system. Each leads a process group of its own, so that its children end with it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, arguments: Sequence[str], **environment: str) -> None:
        """Start `python <arguments>` with these variables added to the environment."""
        with self._log.open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, *arguments],
                    cwd=ROOT,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    @property
    def pids(self) -> list[int]:
        """The pids of those that have not been stopped."""
        return [process.pid for process in self._processes]

    def check(self) -> None:
        """Raise `WorkerError` if a worker has ended."""
        for process in self._processes:
            if process.poll() is not None:
                lines = self._log.read_text(errors="replace").splitlines()
                end = "\n".join(lines[-15:])
                raise WorkerError(f"a worker ended with exit code {process.returncode}:\n{end}")

    def pause(self) -> None:
        """Stop the workers' clocks: a system that polls must not take time from the one whose turn it is."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let paused workers go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the workers, by force if they take more than a few seconds."""
        self.resume()
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        while self._processes:
            process = self._processes.pop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
            # The group outlives its leader as long as there are children in it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
