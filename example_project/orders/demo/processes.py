"""The Celery processes of the demo: started, watched, started again when they die, and always stopped."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

STOP_SECONDS = 10
MOST_RESTARTS = 5
PR_SET_PDEATHSIG = 1
# Loaded here, because little is safe between fork and exec.
_LIBC = ctypes.CDLL(None)


class ProcessDied(RuntimeError):
    """A process would not stay up."""


class Process:
    """One child process in a session of its own, so that Ctrl-C reaches it only through us."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path, cwd: Path) -> None:
        self.name = name
        self.command = command
        self.log = log
        self.cwd = cwd
        self.restarts = 0
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen else None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._popen = self._spawn(output)

    def _spawn(self, output: IO[bytes]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 (our own command)
            self.command,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )

    def ended(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._popen.poll() if self._popen else None

    def ask_to_stop(self) -> None:
        """Tell it to finish what it does and end; answers at once."""
        if self._popen is not None and self._popen.poll() is None:
            self._popen.terminate()

    def stop(self) -> None:
        """Ask it to finish, wait, and if it does not, end it and what it forked."""
        if self._popen is None:
            return
        self.ask_to_stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(STOP_SECONDS)
        # The session is ours alone; whatever is left in it was forked by this child.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()


class Processes:
    """Celery's worker and scheduler as a context manager; leaving it stops them, whatever the reason."""

    def __init__(self, *, app: str, queues: str, cwd: Path, var: Path, report: Callable[[str], None]) -> None:
        celery = [sys.executable, "-m", "celery", "--app", app]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        schedule = str(var / "celerybeat-schedule")
        self._report = report
        self._children = [
            Process(
                "worker",
                [
                    *celery,
                    "worker",
                    "--pool=prefork",
                    "--concurrency=2",
                    f"--queues={queues}",
                    "--loglevel=INFO",
                    *quiet,
                ],
                log=var / "log" / "worker.log",
                cwd=cwd,
            ),
            Process(
                "scheduler",
                [*celery, "beat", "--loglevel=INFO", f"--schedule={schedule}", "--pidfile="],
                log=var / "log" / "scheduler.log",
                cwd=cwd,
            ),
        ]

    def __enter__(self) -> Self:
        try:
            for child in self._children:
                child.log.unlink(missing_ok=True)
                child.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._report("Stopping the worker and the scheduler ...")
        self._stop()

    def watch(self) -> None:
        """Start again what died since the last look. Raises ProcessDied when one dies again and again."""
        for child in self._children:
            code = child.ended()
            if code is None:
                continue
            if child.restarts >= MOST_RESTARTS:
                raise ProcessDied(f"The {child.name} keeps ending (exit code {code}); see {child.log}.")
            child.restarts += 1
            # What the dead one forked may still be at work; the next one must not share the log or the broker with it.
            child.stop()
            child.start()
            self._report(f"The {child.name} ended with {_reason(code)}; started another one (pid {child.pid}).")

    def _stop(self) -> None:
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.stop()


def _reason(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _die_with_parent() -> None:
    """Linux: be told to stop when the demo itself is killed and cannot tell us."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
