"""Brokers, and Celery workers that really run beside the test."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# Set on a test that failed, so that its workers' logs are shown.
FAILED_CALL = pytest.StashKey[bool]()


@dataclass
class Workers:
    """Starts and stops workers on one private queue of one broker."""

    broker: str
    folder: Path
    database_env: dict[str, str]
    app: str = "tests.integration.app"
    queue: str = field(default_factory=lambda: f"pikku-test-{uuid.uuid4().hex[:12]}")
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def name_of(self, number: int) -> str:
        """The node name of a worker, which other tests on the same broker must not have."""
        return f"w{number}@{self.queue}"

    def env(self, dispatcher: str | None = None) -> dict[str, str]:
        """The environment of a process that shares this broker and database."""
        env = {
            **self.database_env,
            "DJANGO_SETTINGS_MODULE": "tests.integration.settings",
            "PIKKU_TEST_BROKER_URL": self.broker,
            "PIKKU_TEST_BROKER_FOLDER": str(self.folder / "broker"),
            "PIKKU_TEST_BEAT_FILE": str(self.folder / f"beat-{len(self.running)}"),
            "PIKKU_TEST_QUEUE": self.queue,
            "PYTHONWARNINGS": "default",
        }
        if dispatcher is None:
            return env
        # Redrives take twice as long each time. Among hundreds of messages some are lost many times in a row, and the
        # test has minutes, not hours.
        return {**env, "PIKKU_TEST_DISPATCHER": dispatcher, "PIKKU_TEST_PATIENCE": "200ms"}

    def start(
        self,
        *,
        beat: bool = True,
        dispatcher: str | None = None,
        concurrency: int = 2,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """A worker process that is ready; with `beat` it also sends the relay's messages."""
        number = len(self.running)
        arguments = ["worker", "-n", self.name_of(number), "-c", str(concurrency), "-Q", self.queue, "-l", "INFO"]
        worker = self.spawn([*arguments, *(["-B"] if beat else [])], env={**self.env(dispatcher), **(env or {})})
        log = self.log_of(number)
        eventually(
            lambda: worker.poll() is not None or " ready." in log.read_text(errors="replace"),
            seconds=60,
            what="the worker is ready",
        )
        assert worker.poll() is None, log.read_text(errors="replace")
        return worker

    def spawn(self, arguments: list[str], *, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """A `celery` process, which leads a group of its own."""
        with self.log_of(len(self.running)).open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", self.app, *arguments],
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def log_of(self, number: int) -> Path:
        """What that process writes."""
        return self.folder / f"worker-{number}.log"

    def ask(self, code: str, *, dispatcher: str | None = None) -> str:
        """Run Python code in a process of the same settings, with Django set up and the test workflows imported."""
        prelude = "import django; django.setup(); from tests.integration.workflows import *\n"
        done = subprocess.run(
            [sys.executable, "-c", prelude + code],
            env=self.env(dispatcher),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """`kill -9` of the worker and its children: no goodbye."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)

    def stop_all(self) -> None:
        """Nothing is left behind."""
        for worker in self.running:
            try:
                os.killpg(worker.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            worker.wait(10)

    def logs(self) -> str:
        """What the workers wrote, for the report of a failed test."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("worker-*.log")))


@pytest.fixture(params=["embedded", "redis", "rabbitmq"])
def workers(request: pytest.FixtureRequest, tmp_path: Path, process_env: dict[str, str]) -> Iterator[Workers]:
    """Workers on each broker; a broker that is not there skips its tests."""
    urls = {"redis": "redis_url", "rabbitmq": "amqp_url"}
    broker = request.getfixturevalue(urls[request.param]) if request.param in urls else "filesystem://"
    made = Workers(broker, tmp_path, process_env)
    yield made
    made.stop_all()
    if request.param == "rabbitmq":
        made.ask(
            "from example_project.celery import app\n"
            "with app.connection_for_write() as connection:\n"
            f"    connection.default_channel.queue_delete({made.queue!r})"
        )
    if request.node.stash.get(FAILED_CALL, False):
        sys.stderr.write(made.logs())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.failed:
        item.stash[FAILED_CALL] = True
    return report


def eventually(holds: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait until `holds()`, or fail."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
