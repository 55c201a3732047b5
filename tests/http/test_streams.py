"""Server-sent events of a run, as a browser gets them."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.db import OperationalError, connections
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from pikku_storage.workflows import reads
from pikku_storage.workflows.http import streams
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.support import DATABASE, connection, data_statements
from tests.http.callers import Caller, address, in_a_loop

pytestmark = pytest.mark.django_db(transaction=True)

Event = dict[str, Any]


def event_of(chunk: bytes) -> Event | None:
    """What a client makes of a chunk; `None` for one that is no event."""
    text = chunk.decode()
    assert text.endswith("\n\n")
    field, _, value = text[:-2].partition(": ")
    return json.loads(value) if field == "data" else None


def events(chunks: Iterator[bytes]) -> Iterator[Event]:
    """The events among the chunks."""
    return (event for chunk in chunks if (event := event_of(chunk)) is not None)


def listen(caller: Caller, run_id: str, *more: str, name: str = "http.doubled", **headers: str) -> Any:
    """A stream, as an iterator of its events."""
    response = caller.get(name, "status", run_id, "stream", *more, **headers)
    assert response.status_code == 200
    return events(iter(response.streaming_content))


def update(status: str, *steps: tuple[str, str], **more: Any) -> Event:
    return {
        "type": "update",
        "status": status,
        **more,
        "steps": [{"stepName": name, "status": status} for name, status in steps],
    }


DONE = {"type": "done"}


@pytest.fixture(autouse=True)
def _brisk(brisk: None) -> None:
    """Every stream here is."""


def test_a_stream_tells_what_changes_until_the_end(ada: Caller, service: WorkflowService) -> None:
    run_id = ada.start(number=2)
    stream = listen(ada, run_id)
    assert next(stream) == update("running")
    service.insert_step_state(run_id, "by hand")
    assert next(stream) == update("running", ("by hand", "pending"))
    service.claim_step(run_id, "by hand")
    assert next(stream) == update("running", ("by hand", "running"))
    service.orchestrate_workflow(run_id)
    steps = (("by hand", "running"), ("double", "succeeded"))
    assert list(stream) == [update("completed", *steps), DONE]


def test_a_full_stream_has_output_error_and_child_runs(ada: Caller, service: WorkflowService) -> None:
    run_id = ada.start(number=2)
    stream = listen(ada, run_id, "full")
    assert next(stream) == update("running", output=None, error=None)
    step = service.insert_step_state(run_id, "child")
    assert next(stream) == update("running", ("child", "pending"), output=None, error=None)
    service.set_step_child_run_id(step.step_id, "some-run")
    expected = update("running", ("child", "pending"), output=None, error=None)
    expected["steps"][0]["childRunId"] = "some-run"
    assert next(stream) == expected
    error = {"message": "broken", "code": "BROKEN", "stack": "of no use to a browser"}
    service.update_run_status(run_id, "failed", error=error)
    assert next(stream) == {**expected, "status": "failed", "error": {"message": "broken", "code": "BROKEN"}}
    assert list(stream) == [DONE]


def test_a_stream_says_nothing_of_outputs_errors_and_children(ada: Caller, service: WorkflowService) -> None:
    run_id = ada.start("http.failing")
    service.orchestrate_workflow(run_id)
    stream = listen(ada, run_id, name="http.failing")
    assert list(stream) == [update("failed", ("refuse", "failed")), DONE]


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_run_that_has_ended_is_told_at_once(ada: Caller, service: WorkflowService, status: str) -> None:
    run_id = ada.start()
    service.update_run_status(run_id, status)
    assert list(listen(ada, run_id)) == [update(status), DONE]


def test_a_suspended_run_keeps_its_stream(ada: Caller, service: WorkflowService) -> None:
    run_id = ada.start()
    stream = listen(ada, run_id)
    assert next(stream) == update("running")
    service.update_run_status(run_id, "suspended")
    assert next(stream) == update("suspended")
    service.update_run_status(run_id, "completed")
    assert list(stream) == [update("completed"), DONE]


def test_a_deterministic_run_begins_with_its_plan(ada: Caller, service: WorkflowService) -> None:
    run_id = service.create_run(
        "http.doubled",
        deterministic=True,
        planned_steps=[{"stepName": "first"}, {"stepName": "second"}],
        wire={"type": "http", "pikkuUserId": ada.id},
    )
    service.insert_step_state(run_id, "first")
    stream = listen(ada, run_id)
    plan = [{"stepName": "first", "status": "pending"}, {"stepName": "second", "status": "pending"}]
    assert next(stream) == {"type": "init", "deterministic": True, "steps": plan}
    assert next(stream) == update("running", ("first", "pending"))
    service.update_run_status(run_id, "completed")
    assert list(stream) == [update("completed", ("first", "pending")), DONE]


def test_what_the_browser_had_before_changes_nothing(ada: Caller, service: WorkflowService) -> None:
    run_id = ada.start()
    service.update_run_status(run_id, "completed")
    for last in ("", "7", "nonsense\x7f"):
        assert list(listen(ada, run_id, Last_Event_ID=last)) == [update("completed"), DONE]


# -- its end -----------------------------------------------------------------------------------------------------------


def test_a_stream_ends_with_its_life_and_the_browser_asks_again(ada: Caller, settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "HTTP_STREAM_LIFE": 50}
    run_id = ada.start()
    response = ada.get("http.doubled", "status", run_id, "stream")
    chunks = list(response.streaming_content)
    assert chunks[0] == b"retry: 1000\n\n"
    assert list(events(iter(chunks))) == [update("running")]


def test_a_stream_ends_when_the_run_is_no_longer_the_callers(ada: Caller) -> None:
    run_id = ada.start()
    stream = listen(ada, run_id)
    assert next(stream) == update("running")
    WorkflowRun.objects.filter(pk=run_id).update(owner_id="somebody else")
    assert list(stream) == []


def test_a_stream_ends_when_the_run_is_deleted(ada: Caller) -> None:
    run_id = ada.start()
    stream = listen(ada, run_id)
    assert next(stream) == update("running")
    assert WorkflowRunService().delete_run(run_id)
    assert list(stream) == []


def test_a_stream_ends_when_the_database_fails(
    ada: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = ada.start()
    stream = listen(ada, run_id)
    assert next(stream) == update("running")

    def failing(*arguments: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(reads, "run_fingerprint", failing)
    assert list(stream) == []
    assert "the database failed" in caplog.text


def test_silence_is_broken_by_a_comment(ada: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.03)
    response = ada.get("http.doubled", "status", ada.start(), "stream")
    chunks = iter(response.streaming_content)
    assert [next(chunks)[:6] for _ in range(4)] == [b"retry:", b"data: ", b": stil", b": stil"]
    response.close()


# -- how it is sent ----------------------------------------------------------------------------------------------------


def test_nobody_on_the_way_holds_events_back(ada: Caller, settings: Settings) -> None:
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *settings.MIDDLEWARE]
    response = ada.get("http.doubled", "status", ada.start(), "stream", Accept_Encoding="gzip")
    assert response["Content-Type"] == "text/event-stream; charset=utf-8"
    assert response["Cache-Control"] == "no-cache, no-transform"
    assert response["X-Accel-Buffering"] == "no"
    first = next(iter(response.streaming_content))
    assert first == b"retry: 1000\n\n"
    assert not first.startswith(gzip.compress(b"")[:2])
    response.close()


def test_a_look_without_news_is_one_statement_without_payloads(ada: Caller, service: WorkflowService) -> None:
    run_id = ada.start()
    for number in range(5):
        service.insert_step_state(run_id, f"step {number}")
    stream = streams.RunStream(DATABASE, run_id, ada.id, full=True)
    with CaptureQueriesContext(connection) as first:
        assert len(stream.look()) == 1
    with CaptureQueriesContext(connection) as later:
        assert stream.look() == []
        assert stream.look() == []
    assert len(data_statements(first)) == 3
    assert len(later.captured_queries) == 2
    assert not [name for name in ("input", "output", "data", "result") if f'"{name}"' in later[0]["sql"]]


# -- under ASGI --------------------------------------------------------------------------------------------------------


async def _listen(client: AsyncClient, run_id: str) -> AsyncIterator[Event]:
    response: Any = await client.get(address("http.doubled", "status", run_id, "stream"))
    assert response.status_code == 200
    assert response.is_async
    async for chunk in response:
        event = event_of(chunk)
        if event is not None:
            yield event


def test_streams_under_asgi_run_side_by_side(ada: Caller, service: WorkflowService) -> None:
    run_ids = [ada.start(number=number) for number in range(3)]

    async def told() -> list[list[Event]]:
        client = AsyncClient()
        client.cookies = ada.client.cookies
        listeners = [_listen(client, run_id) for run_id in run_ids]
        # All are open before the first one ends.
        first = [await anext(listener) for listener in listeners]
        for run_id in run_ids:
            await service.aorchestrate_workflow(run_id)
        rest = [[event async for event in listener] for listener in listeners]
        return [[begin, *others] for begin, others in zip(first, rest, strict=True)]

    for heard in in_a_loop(told()):
        assert heard[0] == update("running")
        assert heard[-2:] == [update("completed", ("double", "succeeded")), DONE]


def is_open() -> bool:
    """Whether this thread has a connection to the database."""
    return connections[DATABASE].connection is not None


def test_a_stream_under_asgi_keeps_no_connection_between_looks(ada: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = ada.start()
    before_looks: list[bool] = []
    look = streams.RunStream.look

    def watched(stream: streams.RunStream) -> list[str]:
        before_looks.append(is_open())
        return look(stream)

    monkeypatch.setattr(streams.RunStream, "look", watched)

    async def told() -> bool:
        client = AsyncClient()
        client.cookies = ada.client.cookies
        listener = _listen(client, run_id)
        await anext(listener)
        await WorkflowRun.objects.filter(pk=run_id).aupdate(status="suspended")
        await anext(listener)
        # What the update above left open is none of the stream's.
        await sync_to_async(connections.close_all)()
        await WorkflowService().aupdate_run_status(run_id, "completed")
        await sync_to_async(connections.close_all)()
        assert [event async for event in listener] == [update("completed"), DONE]
        return await sync_to_async(is_open)()

    assert not in_a_loop(told())
    assert len(before_looks) >= 3
    assert not any(before_looks)


def test_a_request_under_asgi_gives_its_connection_back_when_the_stream_begins(ada: Caller) -> None:
    run_id = ada.start()

    async def told() -> bool:
        client = AsyncClient()
        client.cookies = ada.client.cookies
        listener = _listen(client, run_id)
        await anext(listener)
        return await sync_to_async(is_open)()

    assert not in_a_loop(told())


def test_a_browser_that_leaves_ends_its_stream(ada: Caller) -> None:
    """The whole application, as a server calls it."""
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in ada.client.cookies.items())
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": address("http.doubled", "status", ada.start(), "stream"),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"cookie", cookies.encode())],
    }

    async def visit() -> None:
        # Its methods have no types.
        communicator: Any = ApplicationCommunicator
        server = communicator(get_asgi_application(), scope)
        await server.send_input({"type": "http.request", "body": b""})
        begin = await server.receive_output(5)
        assert begin["status"] == 200
        assert (await server.receive_output(5))["body"] == b"retry: 1000\n\n"
        assert event_of((await server.receive_output(5))["body"]) == update("running")
        assert await server.receive_nothing(0.05)
        await server.send_input({"type": "http.disconnect"})
        await server.wait(5)

    in_a_loop(visit())
