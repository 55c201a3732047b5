"""The agent over HTTP, in JSON, for whoever is signed in.

What somebody may reach is decided by `AgentAccess`, which is bound to them. A thread of somebody else and one that does
not exist are answered alike: 404.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from functools import wraps
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_http_methods

from example_project.support.agent import Decision, SupportAgent, WaitsForColleague
from pikku_storage.agents.access import AgentAccess
from pikku_storage.exceptions import ForbiddenError, PayloadError

View = Callable[..., Coroutine[Any, Any, JsonResponse]]
DECISIONS: dict[str, Decision] = {"approved": "approved", "denied": "denied"}


class BadRequest(ValueError):
    """A body that cannot be used; the message says why."""


def for_users(view: View) -> View:
    """Hands the view the user, and answers for what nobody may do."""

    @wraps(view)
    async def guarded(request: HttpRequest, **arguments: str) -> JsonResponse:
        user = await request.auser()
        if not user.is_authenticated:
            return _error(401, "Sign in first.")
        try:
            return await view(request, user, **arguments)
        except ForbiddenError:
            return _error(404, "There is no such thread.")
        except (BadRequest, PayloadError) as error:
            return _error(400, str(error))
        except WaitsForColleague:
            return _error(409, "A colleague has to decide first.")

    return guarded


@require_http_methods(["GET", "POST"])
@for_users
async def threads(request: HttpRequest, user: Any) -> JsonResponse:
    """GET: the user's threads, the one that changed last first. POST `{message}`: begin one."""
    access = AgentAccess(user)
    if request.method == "GET":
        return JsonResponse({"threads": [asdict(thread) for thread in await access.alist_threads()]})
    text = _text(request, "message")
    thread = await access.acreate_thread(title=text[:80])
    await SupportAgent(access, thread.id).answer(text)
    return await _conversation(access, thread.id, status=201)


@require_http_methods(["GET", "POST", "DELETE"])
@for_users
async def thread(request: HttpRequest, user: Any, thread_id: str) -> JsonResponse:
    """GET: the conversation. POST `{message}`: say something. DELETE: delete it with all that belongs to it."""
    access = AgentAccess(user)
    if request.method == "DELETE":
        await access.adelete_thread(thread_id)
        return JsonResponse({"deleted": thread_id})
    if request.method == "POST":
        await SupportAgent(access, thread_id).answer(_text(request, "message"))
    return await _conversation(access, thread_id)


@require_http_methods(["GET"])
@for_users
async def approvals(request: HttpRequest, user: Any) -> JsonResponse:
    """What waits for a colleague: in the user's own threads, or in everybody's for who may decide."""
    waiting = await AgentAccess(user, admins=True).alist_pending_approvals()
    return JsonResponse({"approvals": [asdict(approval) for approval in waiting]})


@require_http_methods(["POST"])
@for_users
async def approval(request: HttpRequest, user: Any, call_id: str) -> JsonResponse:
    """`{decision: "approved" | "denied"}`, by who holds the scope `admin`. Of several at once, one decides."""
    access = AgentAccess(user, admins=True)
    if not await user.ahas_perm("pikku.admin"):
        return _error(403, "Colleagues decide, not customers.")
    decision = DECISIONS.get(_text(request, "decision"))
    if decision is None:
        raise BadRequest(f"decision is one of {', '.join(DECISIONS)}")
    found = await access.afind_run_by_tool_call_id(call_id)
    if found is None or not await SupportAgent(access, found.run.thread_id).decide(call_id, decision):
        return _error(404, "There is no such approval, or somebody has decided it.")
    return JsonResponse({"decision": decision})


async def _conversation(access: AgentAccess, thread_id: str, *, status: int = 200) -> JsonResponse:
    messages = await SupportAgent(access, thread_id).history.amessages()
    runs = await access.alist_runs(thread_id=thread_id, limit=1)
    state = runs[0].status if runs else None
    return JsonResponse({"threadId": thread_id, "status": state, "messages": messages}, status=status)


def _text(request: HttpRequest, name: str) -> str:
    try:
        body = json.loads(request.body)
    except ValueError:
        raise BadRequest("The body must be JSON") from None
    text = body.get(name) if isinstance(body, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise BadRequest(f"{name} must be a text")
    return text


def _error(status: int, message: str) -> JsonResponse:
    return JsonResponse({"error": message}, status=status)
