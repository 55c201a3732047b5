"""Who acts: in a block, a workflow, a request and a task, and that nobody goes on acting after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from celery import current_app
from celery.app.trace import build_tracer
from celery.signals import before_task_publish, task_postrun, task_prerun
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils.functional import SimpleLazyObject

from pikku_storage.access import celery as through_celery
from pikku_storage.access.acting import ActingUserMiddleware, acting_as, acurrent_user_id, current_user_id
from pikku_storage.exceptions import WorkflowStepFailedError
from pikku_storage.testing import as_step
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.flow import Flow
from tests.conformance.recording import RecordingDispatcher

pytestmark = pytest.mark.django_db(transaction=True)

User = get_user_model()
QUEUE = "acting"


def request_of(user: Any) -> HttpRequest:
    request = RequestFactory().get("/")
    request.user = user
    return request


def test_the_innermost_place_counts_and_ends() -> None:
    assert current_user_id() is None
    with acting_as("ada"):
        with acting_as(User(pk=7)):
            assert current_user_id() == "7"
            with acting_as(None):
                assert current_user_id() is None
            with pytest.raises(ValueError, match="eve"), acting_as("bob"), as_step(owner_id="eve"):
                raise ValueError(current_user_id())
        assert current_user_id() == "ada"
        with as_step(owner_id=None), acting_as(AnonymousUser()):
            assert current_user_id() is None
    assert current_user_id() is None


# -- workflows ---------------------------------------------------------------------------------------------------------


def test_the_owner_of_a_run_acts_in_its_body_and_steps(outbox: RecordingDispatcher) -> None:
    seen: list[tuple[str, str | None]] = []

    @function(queued=True, timeout="30s")
    def queued() -> None:
        seen.append(("queued", current_user_id()))

    @function
    async def patient() -> None:
        await asyncio.sleep(0)
        with acting_as("explicit"):
            seen.append(("explicit", await acurrent_user_id()))
        seen.append(("async", current_user_id()))

    @function(retries=0)
    def failing() -> None:
        seen.append(("failing", current_user_id()))
        raise ValueError("no")

    @function
    def undo(error: Any, input: Any, invocation_id: str) -> None:
        seen.append(("undo", current_user_id()))

    @workflow
    def order(flow: Flow) -> str | None:
        flow.do("queued", queued)
        _: Any = flow.do("patient", patient)
        flow.do("lambda", lambda: seen.append(("lambda", current_user_id())))
        try:
            flow.do("failing", failing, on_error=undo)
        except WorkflowStepFailedError:
            seen.append(("body", current_user_id()))
        return current_user_id()

    with acting_as("worker"):
        run = order.start(owner="ada")
        outbox.deliver()
        assert run.output == "ada"
        assert {user for place, user in seen if place != "explicit"} == {"ada"}
        assert ("explicit", "explicit") in seen
        assert {place for place, _ in seen} >= {"queued", "async", "lambda", "failing", "undo", "body"}
        assert order.run().output is None, "nobody, and not whoever started it"
        assert current_user_id() == "worker"


def test_runs_side_by_side_have_their_own(outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("who", lambda: [current_user_id(), current_step().owner_id])

    owners = [f"user-{number}" for number in range(4)]
    runs = [order.start(owner=owner) for owner in owners]
    outbox.deliver()
    assert [run.output for run in runs] == [[owner, owner] for owner in owners]


# -- requests ----------------------------------------------------------------------------------------------------------


def test_whoever_is_signed_in_acts_in_a_request() -> None:
    reads: list[str] = []

    def lazily(name: str) -> Any:
        def read() -> Any:
            reads.append(name)
            return User(pk=name)

        return SimpleLazyObject(read)

    def view(request: HttpRequest) -> HttpResponse:
        if "boom" in request.GET:
            raise ZeroDivisionError
        return HttpResponse(str(current_user_id()))

    handle = ActingUserMiddleware(view)
    assert handle(request_of(lazily("7"))).content == b"7"
    assert handle(request_of(AnonymousUser())).content == b"None"
    with acting_as("outside"):
        assert handle(RequestFactory().get("/")).content == b"None", "nor without AuthenticationMiddleware"
    ActingUserMiddleware(lambda request: HttpResponse())(request_of(lazily("never")))
    assert reads == ["7"], "only if somebody asks"
    broken = RequestFactory().get("/?boom")
    broken.user = User(pk="7")
    with pytest.raises(ZeroDivisionError):
        handle(broken)
    assert current_user_id() is None


def test_async_requests_side_by_side_have_their_own() -> None:
    async def view(request: HttpRequest) -> HttpResponse:
        found = [await acurrent_user_id()]
        await asyncio.sleep(0.001)
        found += [current_user_id(), await sync_to_async(current_user_id)()]
        assert len(set(found)) == 1
        return HttpResponse(str(found[0]))

    async def scenario() -> list[bytes]:
        handle = ActingUserMiddleware(view)
        answers = await asyncio.gather(*[handle(request_of(User(pk=str(n)))) for n in range(20)])
        assert current_user_id() is None
        return [answer.content for answer in answers]

    assert async_to_sync(scenario)() == [str(n).encode() for n in range(20)]


def test_threads_have_their_own() -> None:
    barrier, seen = threading.Barrier(4, timeout=30), {}

    def work(name: str) -> None:
        assert current_user_id() is None
        with acting_as(name):
            barrier.wait()
            seen[name] = current_user_id()
            barrier.wait()
        assert current_user_id() is None

    with acting_as("parent"):
        threads = [threading.Thread(target=work, args=[f"user-{n}"]) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert seen == {f"user-{n}": f"user-{n}" for n in range(4)}


# -- tasks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker() -> Any:
    """Sends a task and carries it out as a worker does that gets the message: what it found, and its headers."""
    seen: list[str | None] = []
    sent: list[dict[str, Any]] = []

    @current_app.task(name="acting.work")
    def work(fails: bool = False) -> None:
        seen.append(current_user_id())
        if fails:
            raise ZeroDivisionError

    def keep(headers: dict[str, Any], **kwargs: Any) -> None:
        sent.append(dict(headers))

    through_celery.carry_through_celery()
    before_task_publish.connect(keep)
    trace = build_tracer(work.name, work, app=current_app)

    def carry_out(acting: Any, *, forged: Any = None, **options: Any) -> list[Any]:
        with acting_as(acting):
            work.apply_async(kwargs=options, queue=QUEUE)
        headers = sent.pop()
        if forged is not None:
            headers[through_celery.HEADER] = forged
        trace(headers["id"], [], options, {**headers, "is_eager": False})
        assert current_user_id() is None
        return [seen.pop(), headers.get(through_celery.HEADER)]

    carry_out.task = work  # type: ignore[attr-defined]
    yield carry_out
    before_task_publish.disconnect(keep)
    before_task_publish.disconnect(through_celery._send)
    task_prerun.disconnect(through_celery._begin)
    task_postrun.disconnect(through_celery._end)
    del current_app.tasks[work.name]


def test_who_sent_a_task_acts_in_it_and_in_no_other(worker: Callable[..., list[Any]]) -> None:
    assert worker("ada") == ["ada", "ada"]
    assert worker(None) == [None, None]
    assert worker(User(pk=7)) == ["7", "7"]
    assert worker("ada", fails=True) == ["ada", "ada"]
    assert worker(None) == [None, None]
    for forged in (["ada"], 7, "", "x" * 256):
        assert worker(None, forged=forged)[0] is None


def test_an_eager_task_and_a_task_in_a_task_act_for_whoever_calls(worker: Any) -> None:
    with acting_as("ada"):
        worker.task.apply()
        assert current_user_id() == "ada"
    assert worker(None) == [None, None]


def test_what_an_async_view_has_not_read_is_not_sent(worker: Any, caplog: pytest.LogCaptureFixture) -> None:
    user = User.objects.create_user("ada")

    async def view(request: HttpRequest) -> HttpResponse:
        await acurrent_user_id() if "read" in request.GET else None
        worker.task.apply_async(queue=QUEUE)
        return HttpResponse()

    async def scenario(path: str) -> None:
        request = RequestFactory().get(path)
        lazy: Any = SimpleLazyObject(lambda: User.objects.get(pk=user.pk))
        request.user = lazy
        await ActingUserMiddleware(view)(request)

    async_to_sync(scenario)("/?read")
    assert "sent without" not in caplog.text
    async_to_sync(scenario)("/")
    assert "sent without its acting user" in caplog.text
