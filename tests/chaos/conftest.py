"""Workers to be treated badly, and somebody who watches what comes of it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kombu
import pytest

from tests.chaos.servers import BadLine, PrivatePostgres, PrivateRedis, private_postgres
from tests.integration.conftest import (
    FAILED_CALL,
    Workers,
    eventually,
    pytest_runtest_makereport,
)

__all__ = ["pytest_runtest_makereport"]

SEED = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1_000_000)))
LOG_LINES = 80


@pytest.fixture
def seed() -> int:
    """`CHAOS_SEED` repeats a run; a failing test shows its seed."""
    print(f"CHAOS_SEED={SEED}")  # noqa: T201 - pytest shows it for a failing test only
    return SEED


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """The randomness of a test, the same whichever tests ran before it."""
    return random.Random(f"{seed} {request.node.name}")  # noqa: S311 - no secret


@dataclass
class Orders:
    """Orders under way, as an observer sees them (`tests.chaos.observer`)."""

    process: subprocess.Popen[str]
    log: Path
    patience: float

    @property
    def _said(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def _check_alive(self) -> bool:
        assert self.process.poll() is None, f"the observer is gone: {self.log.read_text()[-4000:]}"
        return True

    @property
    def settled(self) -> int:
        """How many have ended so far."""
        return max((line["settled"] for line in self._said if "settled" in line), default=0)

    @property
    def are_over(self) -> bool:
        """Whether all have ended, or the observer has waited long enough."""
        return self._check_alive() and any("over" in line for line in self._said)

    def wait_for(self, settled: int) -> None:
        """Wait until so many have ended."""
        eventually(
            lambda: self.are_over or self.settled >= settled, seconds=self.patience, what=f"{settled} orders have ended"
        )

    def assert_settled_and_balanced(self) -> dict[str, Any]:
        """Every order came to its right end, once and for all. Answers with the observer's report."""
        eventually(lambda: self.are_over, seconds=self.patience + 30, what="the observer has seen enough")
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.wait(60) == 0, self.log.read_text()[-4000:]
        report: dict[str, Any] = next(line["report"] for line in self._said if "report" in line)
        for story in report["stories"]:
            print(story)  # noqa: T201 - for the report of the failed test
        assert report["problems"] == []
        return report


@dataclass
class Scene:
    """The workers of a test, its chance, and the orders that they carry out."""

    workers: Workers
    chance: random.Random
    dispatcher: str | None = None
    others: list[subprocess.Popen[Any]] = field(default_factory=list)
    relay: subprocess.Popen[Any] | None = None
    serving: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """The workers that nobody has taken away."""

    def start_worker(self, *, clock_off_by: int = 0) -> subprocess.Popen[bytes]:
        """One more worker, whose clock may be off by minutes. The relay's messages come from elsewhere, so that any
        worker may go."""
        env = {"PIKKU_TEST_CLOCK_OFF_BY": str(clock_off_by)}
        worker = self.workers.start(beat=False, dispatcher=self.dispatcher, env=env)
        self.serving.append(worker)
        return worker

    def replace(self, worker: subprocess.Popen[bytes]) -> None:
        """Another one takes its place; what becomes of it is the caller's business."""
        self.serving.remove(worker)
        self.start_worker()

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """`kill -9`, and another one takes its place."""
        self.workers.kill(worker)
        self.replace(worker)

    def see_through(self, orders: Orders) -> dict[str, Any]:
        """Wait for the orders' ends, as a supervisor does: it starts a worker again that has ended by itself.

        Celery's does when its broker is away at a bad moment.
        """
        while not orders.are_over:
            for worker in [worker for worker in self.serving if worker.poll() is not None]:
                self.replace(worker)
            # Without it the test would show less than it says.
            assert self.relay is None or self.relay.poll() is None, "the relay has ended"
            time.sleep(0.2)
        return orders.assert_settled_and_balanced()

    def start_beat(self) -> None:
        """The scheduler, a process of its own."""
        env = self.workers.env(self.dispatcher)
        self.workers.spawn(["beat", "-l", "WARNING", "-s", env["PIKKU_TEST_BEAT_FILE"]], env=env)

    def start_relay(self) -> None:
        """In place of a scheduler, where the queue is full of long steps and its messages would wait behind them."""
        with (self.workers.folder / "relay.log").open("wb") as output:
            command = [sys.executable, "-m", "django", "relay"]
            self.relay = subprocess.Popen(command, env=self.workers.env(), stdout=output, stderr=subprocess.STDOUT)
        self.others.append(self.relay)

    def place(
        self, orders: int, *, most_open: int = 20, width: int = 3, seconds: float = 0.0, patience: float = 240
    ) -> Orders:
        """Place orders, not too many at once, whose items take so many seconds each, and watch them."""
        log = self.workers.folder / "observer.log"
        command = [sys.executable, "-m", "tests.chaos.observer", "--orders", str(orders), "--width", str(width)]
        command += ["--open", str(most_open), "--seconds", str(seconds), "--patience", str(patience)]
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                env=self.workers.env(self.dispatcher),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.others.append(process)
        return Orders(process, log, patience)

    def children_of(self, worker: subprocess.Popen[bytes]) -> list[int]:
        """The pool processes of a worker."""
        found = subprocess.run(["pgrep", "-P", str(worker.pid)], capture_output=True, text=True, check=False)  # noqa: S607
        return [int(pid) for pid in found.stdout.split()]

    def kill_child(self, worker: subprocess.Popen[bytes]) -> None:
        """`kill -9` of one of a worker's pool processes."""
        children = self.children_of(worker)
        if children:
            os.kill(self.chance.choice(children), signal.SIGKILL)

    def end(self) -> None:
        """Nothing is left behind."""
        self.workers.stop_all()
        for process in self.others:
            process.kill()
            process.communicate()

    def everything_said(self) -> str:
        """All that the workers wrote."""
        return self.workers.logs()

    def logs(self) -> str:
        """The ends of what the processes wrote."""
        paths = sorted(self.workers.folder.glob("*.log"))
        ends = {path: path.read_text(errors="replace").splitlines()[-LOG_LINES:] for path in paths}
        return "\n".join(f"==== {path}\n" + "\n".join(lines) for path, lines in ends.items())


@pytest.fixture
def make_scene(request: pytest.FixtureRequest, tmp_path: Path, chance: random.Random) -> Iterator[Callable[..., Scene]]:
    """Makes scenes: `make_scene(broker, env, dispatcher=None)`."""
    made: list[Scene] = []

    def make(broker: str, env: Mapping[str, str], dispatcher: str | None = None) -> Scene:
        scene = Scene(Workers(broker, tmp_path, dict(env), app="tests.chaos.app"), chance, dispatcher)
        made.append(scene)
        return scene

    yield make
    for scene in made:
        scene.end()
        if scene.workers.broker.startswith("amqp:"):
            # Redis forgets an empty queue by itself. The scene's own line to the broker may be cut.
            with kombu.Connection(request.getfixturevalue("amqp_url")) as connection:
                kombu.Queue(scene.workers.queue, channel=connection.default_channel).delete()
        if request.node.stash.get(FAILED_CALL, False):
            sys.stderr.write(scene.logs())


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> str:
    """Each broker, for those tests that ask for both."""
    url: str = request.getfixturevalue({"redis": "redis_url", "rabbitmq": "amqp_url"}[request.param])
    return url


@pytest.fixture
def scene(make_scene: Callable[..., Scene], redis_url: str, process_env: dict[str, str]) -> Scene:
    """Workers on Redis, the broker that loses most, and on the database of the tests."""
    return make_scene(redis_url, process_env)


@pytest.fixture(params=[True, False], ids=["keeps", "forgets"])
def own_redis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PrivateRedis]:
    """A Redis server that may be stopped."""
    server = PrivateRedis(tmp_path, keeps=request.param)
    yield server
    server.kill()


@pytest.fixture(scope="session")
def own_postgres() -> Iterator[PrivatePostgres]:
    """A PostgreSQL server that may be stopped."""
    with private_postgres() as server:
        yield server


@pytest.fixture
def bad_line(seed: int) -> Iterator[Callable[..., BadLine]]:
    """Makes bad lines to servers: `bad_line(url, delay=0.02, cuts=0.001)`."""
    made: list[BadLine] = []

    def make(url: str, **options: float) -> BadLine:
        made.append(BadLine(url, seed=seed, **options))
        return made[-1]

    yield make
    for line in made:
        line.end()
