"""Deployments: who is up, whose heart has stopped, and what a call of another service says and takes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from celery.signals import worker_ready, worker_shutdown
from django.core.management import call_command
from django.db import DatabaseError
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from pikku_storage.crypto.remote import session_of
from pikku_storage.db import Engine, engine
from pikku_storage.deployments import announcing
from pikku_storage.deployments.announcing import announce, announce_workers, withdraw
from pikku_storage.deployments.models import Deployment
from pikku_storage.deployments.querysets import DeploymentQuerySet
from pikku_storage.deployments.service import DeploymentService
from pikku_storage.deployments.tasks import upkeep
from pikku_storage.exceptions import DeploymentNotFoundError, PayloadError, RemoteCallError, WeakKeyMaterialError
from pikku_storage.workflows import function
from tests.conformance.remote_service import REMOTE
from tests.conformance.support import DATABASE, connection

pytestmark = pytest.mark.django_db(transaction=True)
SECRET: str = REMOTE["REMOTE_SECRET"]
JWT: dict[str, str] = REMOTE["JWT_SECRETS"]
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _settings(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": None, **REMOTE, "DEPLOYMENT_HEARTBEAT": "1h"}


@pytest.fixture
def deployments(db: None) -> Iterator[DeploymentService]:
    service = DeploymentService()
    yield service
    service.stop()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Moves the database's clock on by so many milliseconds."""
    start, passed = engine(DATABASE).now(), [0]
    monkeypatch.setattr(Engine, "now", lambda self: start + timedelta(milliseconds=passed[0]))

    def move(milliseconds: int) -> None:
        passed[0] += milliseconds

    return move


def wait(until: Callable[[], Any]) -> None:
    ends = time.monotonic() + 10
    while not until():
        assert time.monotonic() < ends
        time.sleep(0.01)


def ids(found: Any) -> list[str]:
    return [each.deployment_id for each in found]


# -- who is up ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("DS-01")
def test_a_deployment_is_up_for_its_time_to_live(deployments: DeploymentService, later: Callable[[int], None]) -> None:
    deployments.start("one", "http://one/", ["rates", "sums", "rates"])
    later(10_000)
    deployments.start("two", "https://two:8000/api", iter(["rates"]))
    found = deployments.get_deployment("one")
    assert found is not None
    assert (found.endpoint, found.functions, found.created_at) == (
        "http://one",
        ("rates", "sums"),
        found.last_heartbeat,
    )
    assert ids(deployments.list_deployments()) == ids(deployments.find_deployments("rates")) == ["two", "one"]
    assert ids(deployments.find_deployments("sums")) == ["one"]
    assert deployments.find_deployments("sum") == []
    later(19_999)
    assert ids(deployments.list_deployments()) == ["two", "one"]
    later(1)
    assert ids(deployments.list_deployments()) == ["two"], "strictly newer"
    assert deployments.heartbeat("one")
    assert ids(deployments.list_deployments()) == ["one", "two"]
    assert not deployments.heartbeat("unknown")
    deployments.stop("one")
    assert deployments.get_deployment("one") is None
    assert not deployments.heartbeat("one")


def test_a_start_replaces_all_of_an_earlier_one(deployments: DeploymentService, later: Callable[[int], None]) -> None:
    deployments.start("one", "http://old", ["a", "b"])
    later(5000)
    deployments.start("one", "http://new", ["c"])
    found = deployments.get_deployment("one")
    assert found is not None
    assert found.created_at is not None
    assert (found.endpoint, found.functions) == ("http://new", ("c",))
    assert found.last_heartbeat - found.created_at == timedelta(seconds=5)
    deployments.start("one", "http://new")
    assert deployments.find_deployments("c") == []


def test_what_has_been_down_for_long_is_swept(deployments: DeploymentService, later: Callable[[int], None]) -> None:
    deployments.start("old", "http://old")
    later(200_000)
    deployments.start("young", "http://young")
    later(99_999)
    assert deployments.sweep() == 0
    later(1)
    upkeep()
    assert deployments.get_deployment("old") is None
    assert deployments.get_deployment("young") is not None


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("", "http://x"), r"\$deployment_id"),
        (("x" * 256, "http://x"), r"\$deployment_id"),
        (("x", "\x00"), r"\$endpoint"),
        (("x", "http://["), r"\$endpoint"),
        (("x", "one.example"), r"\$endpoint"),
        (("x", "http://x", [""]), r"\$functions"),
    ],
)
def test_bad_input_is_refused(deployments: DeploymentService, arguments: Any, path: str) -> None:
    with pytest.raises(PayloadError, match=path):
        deployments.start(*arguments)
    assert deployments.list_deployments() == []


def test_a_heart_survives_a_failing_database_and_a_sweep(
    deployments: DeploymentService, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DEPLOYMENT_HEARTBEAT": "10ms"}
    put, failures = DeploymentQuerySet.put, [3]

    def flaky(self: Any, *args: Any, **options: Any) -> None:
        if threading.current_thread().name == "pikku-heartbeat" and failures[0]:
            failures[0] -= 1
            raise DatabaseError("the database is restarting")
        put(self, *args, **options)

    monkeypatch.setattr(DeploymentQuerySet, "put", flaky)
    deployments.start("one", "http://one", ["rates"])
    first = deployments.get_deployment("one")
    assert first is not None
    wait(lambda: (now := deployments.get_deployment("one")) and now.last_heartbeat > first.last_heartbeat)
    assert failures == [0]
    assert caplog.text.count("A heartbeat failed") == 3
    Deployment.objects.all().delete()
    wait(lambda: deployments.find_deployments("rates"))
    deployments.stop()
    time.sleep(0.05)
    assert deployments.get_deployment("one") is None, "no beat after the stop"
    assert not [thread for thread in threading.enumerate() if thread.name == "pikku-heartbeat"]


def test_twins_are_awaited(deployments: DeploymentService) -> None:
    async def scenario() -> list[str]:
        await deployments.astart("one", NOWHERE, ["rates"])
        found = await deployments.afind_deployments("rates")
        with pytest.raises(RemoteCallError):
            await deployments.ainvoke("rates")
        await deployments.astop()
        return ids(found)

    assert async_to_sync(scenario)() == ["one"]
    assert deployments.list_deployments() == []


@pytest.mark.skipif(connection.vendor != "mongodb", reason="about MongoDB")
def test_documents_are_those_of_the_typescript_packages(deployments: DeploymentService) -> None:
    deployments.start("one", "http://one", ["b", "a"])
    collection = connection.database["pikku_deployments"]
    document = collection.find_one({"_id": "one"})
    assert set(document) == {"_id", "endpoint", "functions", "lastHeartbeat", "createdAt"}
    assert document["functions"] == ["a", "b"]
    bare = {"_id": "theirs", "endpoint": "http://theirs", "lastHeartbeat": document["lastHeartbeat"]}
    collection.insert_many([bare, {**bare, "_id": "more", "functions": ["z"]}])
    assert ids(deployments.find_deployments("z")) == ["more"]
    assert deployments.heartbeat("theirs")


# -- processes that announce themselves --------------------------------------------------------------------------------


class Worker:
    hostname = "celery@host"


@pytest.fixture
def _withdrawn() -> Iterator[None]:
    yield
    withdraw()


@pytest.mark.usefixtures("_withdrawn")
def test_a_web_process_announces_itself(
    deployments: DeploymentService, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert announce() is None
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DEPLOYMENT_ENDPOINT": "http://web/"}

    @function(remote=True, name="deployments.rates")
    def rates() -> None: ...

    first = announce()
    wait(lambda: deployments.find_deployments("deployments.rates"))
    # As a fork finds it: what is known of the parent, and none of its threads.
    parents = list(announcing._announced)
    announcing._begin_anew()
    wait(lambda: len(deployments.find_deployments("deployments.rates")) == 2)
    assert {each.endpoint for each in deployments.list_deployments()} == {"http://web"}
    withdraw()
    assert ids(deployments.list_deployments()) == [first], "a child leaves alone what is its parent's"
    announcing._announced.extend(parents)
    withdraw()
    assert deployments.list_deployments() == []

    def fail(*args: Any) -> None:
        raise DatabaseError("gone")

    announce()
    with monkeypatch.context() as patch:
        patch.setattr(DeploymentQuerySet, "remove", fail)
        withdraw()


@pytest.mark.usefixtures("_withdrawn")
def test_a_worker_announces_itself_and_serves_no_function(deployments: DeploymentService, capsys: Any) -> None:
    announce_workers()
    try:
        worker_ready.send(Worker())
        wait(lambda: deployments.get_deployment("celery@host"))
        call_command("list_deployments")
        assert "celery@host  celery://celery@host  " in (shown := capsys.readouterr().out)
        assert shown.endswith(" s ago  no functions\n")
        call_command("list_deployments", function="rates")
        assert capsys.readouterr().out == "No deployment is up.\n"
        parents = list(announcing._announced)
        announcing._begin_anew()
        assert announcing._announced == [], "a process of its pool is no worker"
        announcing._announced.extend(parents)
        worker_shutdown.send(Worker())
        assert deployments.get_deployment("celery@host") is None
    finally:
        worker_ready.disconnect(announcing._worker_begins)
        worker_shutdown.disconnect(announcing._worker_ends)


# -- calls -------------------------------------------------------------------------------------------------------------


class Target(ThreadingHTTPServer):
    """A service that answers what it is told to, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.answer: tuple[int, bytes] = (200, b'{"ok":true}')
        super().__init__(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}/api"


class Handler(BaseHTTPRequestHandler):
    server: Target

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.path, headers, json.loads(body)))
        status, answer = self.server.answer
        if status:
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.contract("DS-01", "RM-01", "RM-31")
def test_a_call_says_what_the_contract_says(deployments: DeploymentService, target: Target, settings: Settings) -> None:
    deployments.start("one", target.endpoint, ["rates/of day"])
    with CaptureQueriesContext(connection) as queries:
        assert deployments.invoke("rates/of day", {"é": [1, None]}, {"userId": "ada"}, "trace-1") == {"ok": True}
    assert len(queries) == 1
    deployments.invoke("rates/of day")
    (path, headers, body), (_path, bare, empty) = target.asked
    assert (path, body, empty) == ("/api/remote/rpc/rates%2Fof%20day", {"data": {"é": [1, None]}}, {"data": None})
    assert (headers["content-type"], headers["x-request-id"]) == ("application/json", "trace-1")
    assert session_of(SECRET, JWT, "rates/of day", headers["authorization"]) == {"userId": "ada"}
    assert session_of(SECRET, JWT, "rates/of day", bare["authorization"]) is None
    assert "x-request-id" not in bare
    settings.PIKKU_STORAGE = {"JWT_SECRETS": JWT}
    deployments.invoke("rates/of day", {}, {"userId": "ada"})
    assert "authorization" not in target.asked[-1][1]
    settings.PIKKU_STORAGE = {"JWT_SECRETS": JWT, "REMOTE_SECRET": "short"}
    with pytest.raises(WeakKeyMaterialError):
        deployments.invoke("rates/of day")
    for bad in ({"data": {1}}, {"session": {1}}, {"trace_id": "a\r\nb: c"}):
        with pytest.raises(PayloadError):
            deployments.invoke("rates/of day", **bad)
    assert len(target.asked) == 3


def test_what_cannot_be_reached_is_passed_over(
    deployments: DeploymentService, target: Target, later: Callable[[int], None], caplog: Any
) -> None:
    with pytest.raises(DeploymentNotFoundError, match="No deployment found for function 'rates'"):
        deployments.invoke("rates")
    # What other programs may have written.
    dead = (NOWHERE, "http://127.0.0.1:99999", "ftp://x", "http://[", "nowhere", NOWHERE)
    for name, endpoint in enumerate([target.endpoint, *dead]):
        later(1000)
        rows = Deployment.objects.using(DATABASE)
        rows.put(str(name), endpoint, ["rates"], at=rows.engine.now())
    assert deployments.invoke("rates") == {"ok": True}
    assert caplog.text.count("is not reached for rates") == 2
    deployments.stop("0")
    with pytest.raises(RemoteCallError, match="no deployment can be reached") as caught:
        deployments.invoke("rates")
    assert (caught.value.status, caught.value.was_sent) == (None, False)


@pytest.mark.parametrize(
    ("answer", "reason", "status"),
    [
        ((500, b"boom"), "500", 500),
        ((302, b""), "302", 302),
        ((200, b"{"), "the answer is no JSON", 200),
        ((200, b"[" * 100_000), "the answer is no JSON", 200),
        ((200, b'"' + b"x" * 200_000 + b'"'), "the answer is larger than MAX_PAYLOAD_BYTES allows", 200),
        ((0, b""), "RemoteDisconnected", None),
    ],
    ids=["500", "302", "no JSON", "deep", "large", "cut off"],
)
def test_what_was_sent_is_not_sent_again(
    deployments: DeploymentService,
    target: Target,
    settings: Settings,
    answer: Any,
    reason: str,
    status: int | None,
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MAX_PAYLOAD_BYTES": 150_000}
    target.answer = answer
    deployments.start("one", target.endpoint, ["rates"])
    deployments.start("two", f"{target.endpoint}/two", ["rates"])
    with pytest.raises(RemoteCallError, match=f"^Remote RPC call to 'rates' failed: {reason}$") as caught:
        deployments.invoke("rates")
    assert (caught.value.status, caught.value.was_sent, len(target.asked)) == (status, True, 1)


def test_answers_that_hold_nothing_or_come_too_late(
    deployments: DeploymentService, target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployments.start("one", target.endpoint, ["rates"])
    target.answer = (204, b"")
    assert deployments.invoke("rates") is None
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "REMOTE_TIMEOUT": "50ms"}
    answered = threading.Event()
    monkeypatch.setattr(Handler, "do_POST", lambda self: answered.wait(5))
    with pytest.raises(RemoteCallError, match="TimeoutError"):
        deployments.invoke("rates")
    answered.set()
