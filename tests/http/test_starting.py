"""Starting runs over HTTP, and waiting for their output."""

import asyncio
from typing import Any

import pytest
from django.test import AsyncClient
from pytest_django import Settings

from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.service import WorkflowService
from tests.http.callers import Caller, address, in_a_loop

pytestmark = pytest.mark.django_db(transaction=True)


def error_of(response: Any) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


def test_a_run_started_over_http_is_the_callers(ada: Caller, service: WorkflowService) -> None:
    response = ada.post("http.doubled", "start", body={"data": {"number": 21}})
    assert response.status_code == 200
    assert list(response.json()) == ["runId"]
    run = service.get_run(response.json()["runId"])
    assert run is not None
    assert (run.workflow, run.input, run.owner_id) == ("http.doubled", {"number": 21}, ada.id)
    assert run.wire == {"type": "http", "pikkuUserId": ada.id}
    assert response["Location"] == address("http.doubled", "status", run.id)


@pytest.mark.parametrize("body", [None, {}, {"data": None}, {"data": {}}])
def test_data_may_be_left_out(ada: Caller, service: WorkflowService, body: Any) -> None:
    run = service.get_run(ada.post("http.doubled", "start", body=body).json()["runId"])
    assert run is not None
    assert run.input == {}


def test_the_status_is_what_the_contract_says(ada: Caller, service: WorkflowService) -> None:
    run_id = ada.start(number=4)
    before = ada.get("http.doubled", "status", run_id).json()
    assert before.keys() == {"id", "status", "startedAt", "deterministic", "steps"}
    assert (before["id"], before["status"], before["steps"]) == (run_id, "running", [])
    service.orchestrate_workflow(run_id)
    after = ada.get("http.doubled", "status", run_id).json()
    assert after.keys() == {"id", "status", "startedAt", "completedAt", "deterministic", "output", "steps"}
    assert (after["status"], after["output"]) == ("completed", 8)
    [step] = after["steps"]
    assert step.keys() == {"name", "status", "attempts", "duration"}
    assert (step["name"], step["status"], step["attempts"]) == ("double", "succeeded", 1)


def test_the_status_of_a_failed_run_has_the_message_and_no_trace(ada: Caller, service: WorkflowService) -> None:
    run_id = ada.start("http.failing")
    service.orchestrate_workflow(run_id)
    assert ada.get("http.failing", "status", run_id).json()["error"] == {"message": "no, thank you"}


def test_run_answers_with_the_output(ada: Caller, inline: None) -> None:
    response = ada.post("http.doubled", "run", body={"data": {"number": 21}})
    assert (response.status_code, response.json()) == (200, 42)


def test_run_says_how_a_run_failed(ada: Caller, inline: None) -> None:
    response = ada.post("http.failing", "run")
    assert response.status_code == 422
    run_id = WorkflowRun.objects.values_list("pk", flat=True).get()
    assert error_of(response) == {"name": "WorkflowRunFailedError", "message": "no, thank you", "runId": run_id}


def test_run_waits_no_longer_than_it_may(ada: Caller, settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "HTTP_RUN_WAIT": 30}
    response = ada.post("http.doubled", "run")
    run_id = WorkflowRun.objects.values_list("pk", flat=True).get()
    assert (response.status_code, response.json()) == (202, {"runId": run_id, "status": "running"})
    assert response["Location"] == address("http.doubled", "status", run_id)


def test_run_does_not_wait_for_a_suspended_run(ada: Caller, service: WorkflowService) -> None:
    key = {"Idempotency_Key": "one"}
    run_id = ada.post("http.doubled", "start", **key).json()["runId"]
    assert service.update_run_status(run_id, "suspended", error={"message": "later"})
    response = ada.post("http.doubled", "run", **key)
    assert (response.status_code, response.json()) == (202, {"runId": run_id, "status": "suspended"})


def test_run_waits_for_the_workers_also_under_asgi(ada: Caller, service: WorkflowService) -> None:
    client = AsyncClient(enforce_csrf_checks=True)
    client.cookies = ada.client.cookies

    async def run_with_a_worker() -> Any:
        request = asyncio.create_task(
            client.post(
                address("http.doubled", "run"), {"data": {"number": 3}}, "application/json", headers=ada.headers
            )
        )
        while not (started := [run_id async for run_id in WorkflowRun.objects.values_list("pk", flat=True)]):
            await asyncio.sleep(0.01)
        await service.aorchestrate_workflow(started[0])
        return await request

    response = in_a_loop(run_with_a_worker())
    assert (response.status_code, response.json()) == (200, 6)


def test_run_works_with_a_transaction_around_each_request(
    ada: Caller, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import connections

    for connection in connections.all():
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert ada.post("http.doubled", "run").json() == 2


# -- idempotency -------------------------------------------------------------------------------------------------------


def test_the_same_key_is_the_same_run(ada: Caller) -> None:
    first = ada.post("http.doubled", "start", body={"data": {"number": 2}}, Idempotency_Key="order-A17")
    again = ada.post("http.doubled", "start", body={"data": {"number": 2}}, Idempotency_Key="order-A17")
    assert first.json() == again.json()
    assert WorkflowRun.objects.count() == 1


def test_somebody_elses_key_is_another_run(ada: Caller, bob: Caller, service: WorkflowService) -> None:
    run_ids = [caller.post("http.doubled", "start", Idempotency_Key="k").json()["runId"] for caller in (ada, bob)]
    owners = [run.owner_id for run_id in run_ids if (run := service.get_run(run_id)) is not None]
    assert owners == [ada.id, bob.id]


def test_a_key_with_other_data_is_refused(ada: Caller) -> None:
    ada.post("http.doubled", "start", body={"data": {"number": 2}}, Idempotency_Key="k")
    response = ada.post("http.doubled", "start", body={"data": {"number": 3}}, Idempotency_Key="k")
    assert (response.status_code, error_of(response)["name"]) == (422, "IdempotencyKeyReusedError")
    assert WorkflowRun.objects.count() == 1


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "x" * 256])
def test_a_key_that_cannot_be_used_is_refused(ada: Caller, key: str) -> None:
    response = ada.post("http.doubled", "start", Idempotency_Key=key)
    assert (response.status_code, error_of(response)["name"]) == (400, "MalformedRequestError")
    assert not WorkflowRun.objects.exists()
