"""The addresses of workflows (contract console.md §6)."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import router
from django.http import JsonResponse, StreamingHttpResponse
from django.urls import reverse

from pikku_storage.conf import settings
from pikku_storage.exceptions import WorkflowApprovalResolvedError, WorkflowRunSuspendedError
from pikku_storage.json import Json
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.http import streams
from pikku_storage.workflows.http.access import check_may_start, may_read, own_run, run_of
from pikku_storage.workflows.http.bodies import body_of, idempotency_key_of
from pikku_storage.workflows.http.endpoints import Call, endpoint
from pikku_storage.workflows.http.errors import ApprovalClosedError, IdempotencyKeyReusedError, NoSuchRunError
from pikku_storage.workflows.http.shapes import report_json
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.service import WorkflowService

TRIGGER = "http"
"""What the runs that are started here say they were started by."""


@endpoint("POST")
def start(call: Call) -> JsonResponse:
    """`{data?}` → `{runId}`: hands a run to the workers."""
    handle = _started(call)
    return _answer({"runId": handle.id}, status=200, location=_address(call, handle.id))


@endpoint("POST")
async def run(call: Call) -> JsonResponse:
    """`{data?}` → the output, once the run has ended; 202 and `{runId, status}` if it takes longer, or waits for
    somebody."""
    handle = await sync_to_async(_started)(call)
    try:
        return _answer(await handle.aresult(timeout=settings.HTTP_RUN_WAIT / 1000))
    except (TimeoutError, WorkflowRunSuspendedError):
        found = await handle.aget()
    return _answer({"runId": found.id, "status": found.status}, status=202, location=_address(call, found.id))


@endpoint("POST")
def approve(call: Call, run_id: str) -> JsonResponse:
    """`{reason, decision}` → `{ok: true}`: answers an approval, which says itself who may; whosever the run is."""
    body = body_of(call.request, keys=("reason", "decision"), required=("reason", "decision"))
    service = WorkflowService()
    run = run_of(service, call.definition.name, run_id)
    try:
        service.approve_step(run.id, body["reason"], body["decision"], by=call.user)
    except WorkflowApprovalResolvedError as error:
        if may_read(run, call.user_id):
            raise
        raise ApprovalClosedError(error.reason) from None
    return _answer({"ok": True})


@endpoint("GET")
def status(call: Call, run_id: str) -> JsonResponse:
    """How the run is: `shapes.report_json`."""
    service = WorkflowService()
    own_run(service, call.definition.name, run_id, call.user_id)
    report = service.get_run_status(run_id)
    if report is None:
        # Deleted just now.
        raise NoSuchRunError(run_id)
    return _answer(report_json(report))


@endpoint("GET")
def stream(call: Call, run_id: str, *, full: bool) -> StreamingHttpResponse:
    """The run's events until it ends: `init`, `update`, `done`."""
    using = router.db_for_write(WorkflowRun)
    own_run(WorkflowService(), call.definition.name, run_id, call.user_id)
    told = streams.RunStream(using, run_id, call.user_id, full=full)
    # Each kind of server can only send what the other would first collect whole.
    events: Any = streams.asent(told) if isinstance(call.request, ASGIRequest) else streams.sent(told, using)
    return StreamingHttpResponse(
        events, content_type="text/event-stream; charset=utf-8", headers=streams.event_stream_headers()
    )


def _started(call: Call) -> WorkflowRunHandle:
    check_may_start(call.definition, call.user)
    body = body_of(call.request, keys=("data",))
    data = {} if body.get("data") is None else body["data"]
    key = idempotency_key_of(call.request, call.user_id)
    handle = call.definition.start(data, owner=call.user_id, idempotency_key=key, trigger=TRIGGER)
    if not handle.created:
        first = handle.get()
        if not may_read(first, call.user_id) or first.input != data:
            raise IdempotencyKeyReusedError("This Idempotency-Key was used before, with other data")
    return handle


def _answer(content: Json, *, status: int = 200, location: str | None = None) -> JsonResponse:
    headers = {"Cache-Control": "no-store"} | ({} if location is None else {"Location": location})
    return JsonResponse(content, safe=False, status=status, headers=headers)


def _address(call: Call, run_id: str) -> str:
    match = call.request.resolver_match
    namespace = match.namespace if match is not None else ""
    return reverse(f"{namespace}:status", kwargs={"name": call.definition.name, "run_id": run_id})
