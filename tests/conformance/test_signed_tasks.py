"""Who acts in a Celery task when messages are signed: whoever acted where it was sent, and nobody in a forged one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from celery import chain, current_app
from celery.app.trace import build_tracer
from celery.signals import before_task_publish, task_postrun, task_prerun
from kombu.utils.json import dumps, loads
from pytest_django import Settings

from pikku_storage.access import celery as unsigned
from pikku_storage.access.acting import acting_as, current_user_id
from pikku_storage.deployments import queue_identity
from pikku_storage.deployments.checks import check_messages, check_secrets
from pikku_storage.deployments.queue_identity import HEADER, sign_celery_messages

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "queue-identity-secret-0123456789-abcdef"
Configure = Callable[..., None]


class Worker:
    """Sends a task and carries it out as a worker does that gets the message: JSON, and nothing else of the sender."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []
        self.sent: list[tuple[dict[str, Any], Any]] = []

        @current_app.task(name="signed.work")
        def work(*args: Any, **options: Any) -> None:
            self.seen.append(current_user_id())

        self.task = work
        self.trace = build_tracer(work.name, work, app=current_app)

    def keep(self, headers: dict[str, Any], body: Any, **kwargs: Any) -> None:
        self.sent.append((headers, loads(dumps(body))))

    def send(self, acting: Any, *args: Any, **options: Any) -> tuple[dict[str, Any], Any]:
        with acting_as(acting):
            self.task.apply_async(args, options, queue="signed")
        headers, body = self.sent.pop()
        return {**headers}, body

    def receive(self, headers: dict[str, Any], body: Any) -> str | None:
        args, options, following = body
        self.trace(headers["id"], args, options, {**headers, **following, "is_eager": False})
        assert current_user_id() is None
        return self.seen.pop()

    def carry_out(self, acting: Any, *args: Any, **options: Any) -> str | None:
        return self.receive(*self.send(acting, *args, **options))


@pytest.fixture
def configure(settings: Settings) -> Configure:
    def configure(**given: Any) -> None:
        settings.PIKKU_STORAGE = {"DISPATCHER": None, **given}
        queue_identity._warned.clear()

    configure(QUEUE_IDENTITY_SECRET=SECRET)
    return configure


@pytest.fixture
def worker(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    worker = Worker()
    monkeypatch.setattr(queue_identity, "_signing", False)
    # Whichever a project has called before.
    unsigned.carry_through_celery()
    sign_celery_messages()
    before_task_publish.connect(worker.keep)
    yield worker
    monkeypatch.undo()
    for signal, receivers in (
        (before_task_publish, (worker.keep, queue_identity._send, unsigned._send)),
        (task_prerun, (queue_identity._begin, unsigned._begin)),
        (task_postrun, (queue_identity._end, unsigned._end)),
    ):
        for receiver in receivers:
            signal.disconnect(receiver)
    del current_app.tasks[worker.task.name]


@pytest.mark.contract("QI-03", "QI-08", "QI-13", "QI-15", "QR-04")
def test_who_sent_a_task_acts_in_it_and_in_no_other(worker: Worker) -> None:
    assert worker.carry_out("ada", 1, to="bob") == "ada"
    assert worker.carry_out(None) is None
    headers, _body = worker.send("ada")
    assert headers[HEADER].startswith("pq1.")
    assert unsigned.HEADER not in headers
    assert HEADER not in worker.send(None)[0]


def test_what_celery_writes_as_json_is_the_same_after_the_broker(worker: Worker) -> None:
    values = [datetime(2026, 3, 2, 9, tzinfo=UTC), Decimal("1.50"), UUID(int=7), (1, 2.0), {"é": None}, b"\xff"]
    assert worker.carry_out("ada", *values, when=values) == "ada"


@pytest.mark.contract("QI-01", "QI-02", "QI-05", "QI-06")
def test_a_forged_message_acts_for_nobody_and_its_task_runs(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    headers, (args, options, following) = worker.send("ada", 1)
    extra = worker.task.si(2)
    other, _ = worker.send("eve", 1)
    forged = [
        ({**headers, HEADER: "ada"}, args, options, following),
        ({**headers, HEADER: ["ada"]}, args, options, following),
        ({**headers, HEADER: other[HEADER]}, args, options, following),
        ({**headers, "id": "another"}, args, options, following),
        (headers, [2], options, following),
        (headers, args, {"to": "eve"}, following),
        (headers, args, options, {**following, "callbacks": [extra]}),
        (headers, args, options, {**following, "chain": [extra]}),
    ]
    for given, *body in forged:
        caplog.clear()
        assert worker.receive(given, body) is None
        assert "is carried out for nobody" in caplog.text
        assert {record.levelname for record in caplog.records if record.name == queue_identity.__name__} == {"ERROR"}
        worker.sent.clear()
    bare = {unsigned.HEADER: "ada", **{name: value for name, value in headers.items() if name != HEADER}}
    assert worker.receive(bare, (args, options, following)) is None, "an unsigned header is not believed"
    assert worker.receive(headers, (args, options, following)) == "ada"


@pytest.mark.contract("QI-04")
def test_a_message_of_one_task_does_not_act_in_another(worker: Worker) -> None:
    headers, body = worker.send("ada")
    worker.task.name = "signed.another"
    try:
        assert worker.receive(headers, body) is None
    finally:
        worker.task.name = "signed.work"


def test_what_follows_a_task_acts_for_the_same_user(worker: Worker) -> None:
    with acting_as("ada"):
        chain(worker.task.si(1), worker.task.si(2)).apply_async(queue="signed")
    headers, body = worker.sent.pop()
    assert worker.receive(headers, body) == "ada"
    assert worker.receive(*worker.sent.pop()) == "ada", "sent by the worker, and signed there"


@pytest.mark.contract("QI-09", "QI-12", "QI-14")
@pytest.mark.parametrize(
    ("given", "warning"), [({}, "is missing"), ({"QUEUE_IDENTITY_SECRET": "short"}, "at least 32 characters")]
)
def test_without_a_good_secret_identities_are_dropped_with_one_warning(
    worker: Worker, configure: Configure, caplog: pytest.LogCaptureFixture, given: dict[str, Any], warning: str
) -> None:
    signed = worker.send("ada")
    configure(**given)
    for _ in range(3):
        assert HEADER not in worker.send("ada")[0]
    assert caplog.text.count(warning) == 1
    for _ in range(3):
        assert worker.receive(*signed) is None
    own = [record for record in caplog.records if record.name == queue_identity.__name__]
    warnings = [record for record in own if record.levelno >= logging.WARNING]
    # One for the sender, and one for the worker if it has something else to say.
    assert len(warnings) == (1 if not given else 2)
    assert "short" not in caplog.text
    configure(QUEUE_IDENTITY_SECRET="another-secret-0123456789-0123456789")
    assert worker.receive(*signed) is None


def test_an_unsigned_header_is_not_believed_whichever_is_asked_first(worker: Worker) -> None:
    headers, body = worker.send(None)
    unsigned.carry_through_celery()
    assert worker.receive({**headers, unsigned.HEADER: "eve"}, body) is None


def test_the_checks_say_that_a_secret_is_missing_short_or_weak(
    worker: Worker, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids() -> list[str | None]:
        return [found.id for found in (*check_secrets(), *check_messages())]

    assert ids() == []
    configure()
    assert ids() == ["pikku.W502"]
    for secret, expected in (("short", ["pikku.E501"]), ("abc" * 20, ["pikku.W501"]), (7, ["pikku.W502"])):
        configure(QUEUE_IDENTITY_SECRET=secret)
        assert ids() == expected
    monkeypatch.setattr(queue_identity, "_signing", False)
    configure()
    assert ids() == []


def test_an_eager_task_acts_for_whoever_calls(worker: Worker) -> None:
    with acting_as("ada"):
        worker.task.apply()
        assert current_user_id() == "ada"
    assert worker.seen == ["ada"]


def test_a_message_that_is_no_json_is_sent_without_identity(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    headers: dict[str, Any] = {"id": "id", "task": "signed.work"}
    with acting_as("ada"):
        queue_identity._send(headers=headers, body=([object()], {}, {}))
        queue_identity._send(headers=headers, body={"args": []})
    assert HEADER not in headers
    assert caplog.text.count("is sent without its acting user") == 2
