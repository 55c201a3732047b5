"""Threads with a past, as agents and their adapters would have kept them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse

from pikku_storage.agents.models import AgentMessage, AgentRun, AgentThread, AgentToolCall
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.ids import new_id
from tests.console.stories import now

HOSTILE = ["a/b", "a_b%c", "quo\"te's", "snow ☃ 🍵", "<b>bold</b>", "semi;colon:x", "_2F", "?before=x#y", "\\back"]
"""Ids that mean something to an address, to HTML, to LIKE or to the admin's own quoting."""
MARKUP = "<script>alert(1)</script><b onmouseover=alert(2)>x</b>"


def address(model: str, view: str = "changelist", *args: str) -> str:
    """An address of the pages of agents."""
    return reverse(f"admin:pikku_agents_{model}_{view}", args=[quote(each) for each in args])


def thread_url(thread_id: str, view: str = "change", *args: str) -> str:
    """An address of a thread."""
    return address("agentthread", view, thread_id, *args)


def approval_url(call_id: str) -> str:
    """The page that takes the answer."""
    return address("agentapproval", "change", call_id)


def conversation(owner: str, *, thread_id: str | None = None, title: str | None = "A broken pot", **run: Any) -> str:
    """A thread with a question and an answer, and a run that is over."""
    storage = AgentStorageService()
    thread = storage.create_thread(owner, thread_id=thread_id, title=title)
    storage.save_messages(
        thread.id,
        [
            {"role": "user", "content": "My pot is broken."},
            {"role": "assistant", "content": [{"type": "text", "text": "I am sorry to hear that."}]},
        ],
    )
    usage = {"inputTokens": 240, "outputTokens": 31, "model": "m-1"}
    storage.create_run(
        **{
            "agent_name": "support",
            "thread_id": thread.id,
            "resource_id": owner,
            "status": "completed",
            "usage": usage,
            **run,
        }
    )
    return thread.id


def waiting(
    owner: str,
    *,
    thread_id: str | None = None,
    call_id: str | None = None,
    args: Any = None,
    title: str | None = "Refund for A17",
    **approval: Any,
) -> tuple[str, str]:
    """A thread in which an agent asks whether it may refund an order; answers with its id and the call's."""
    storage = AgentStorageService()
    thread = storage.create_thread(owner, thread_id=thread_id, title=title)
    call_id = call_id or new_id()
    storage.save_messages(
        thread.id,
        [
            {"role": "user", "content": "I want my money back for order A17."},
            {
                "role": "assistant",
                "content": "Let me see what I can do.",
                "toolCalls": [{"id": call_id, "name": "refund", "args": args or {"order": "A17", "cents": 4200}}],
            },
        ],
    )
    storage.create_run(
        agent_name="support",
        thread_id=thread.id,
        resource_id=owner,
        status="suspended",
        suspend_reason="approval",
        pending_approvals=[{"toolCallId": call_id, **approval}],
        usage={"inputTokens": 900, "outputTokens": 64, "model": "m-1"},
    )
    return thread.id, call_id


def asked_at(call_id: str, moment: datetime | None) -> None:
    """Let an approval have been asked for at that time; `None` as another program does that keeps no time."""
    AgentToolCall.everyones.filter(pk=call_id).update(approval_asked_at=moment)


def busy_afternoon(owner: str) -> str:
    """A long talk with everything that a page can show; answers with the thread's id."""
    storage = AgentStorageService()
    thread = storage.create_thread(
        owner, title="Where is order A17, and may I send it back?", metadata={"channel": "web", "locale": "de"}
    )
    told = '{"order": "A17", "state": "shipped", "courier": "dhl", "items": 3, "total_cents": 4200}'
    batch: list[dict[str, Any]] = [
        {"role": "system", "content": "You help the customers of a tea shop. Money is given back after approval only."},
        {"role": "user", "content": "Hello! Where is my order A17? I ordered it last week and nothing came."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "The order's number is there. Look it up before saying anything."},
                {"type": "text", "text": "Let me look that up for you."},
            ],
            "toolCalls": [{"id": f"look-{thread.id}", "name": "look_up_order", "args": {"order_id": "A17"}}],
        },
        {"role": "tool", "toolResults": [{"id": f"look-{thread.id}", "name": "look_up_order", "result": told}]},
        {"role": "assistant", "content": "It was shipped on Monday and has arrived, says the courier."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "It did arrive, but the iron pot is cracked. I want my money back, please."},
                {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk" * 9000}},
                {"type": "image_url", "image_url": {"url": "https://img.example/cracked.jpg"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I am sorry about that. I shall ask a colleague whether I may give the price back.",
            "toolCalls": [
                {"id": f"photo-{thread.id}", "name": "judge_photo", "args": {"url": "https://img.example/cracked.jpg"}},
                {"id": f"refund-{thread.id}", "name": "refund_order", "args": {"order_id": "A17"}},
            ],
        },
        {
            "role": "tool",
            "toolResults": [
                {"id": f"photo-{thread.id}", "name": "judge_photo", "result": '{"error": "the image took too long"}'}
            ],
        },
    ]
    for message in batch:
        storage.save_messages(thread.id, [message])
    first = storage.create_run(
        agent_name="support",
        thread_id=thread.id,
        resource_id=owner,
        status="completed",
        usage={"inputTokens": 1840, "outputTokens": 212, "model": "claude-sonnet"},
    )
    for score, reason in ((0.6, "Did not say when it was shipped."), (0.9, "Friendly, and to the point.")):
        storage.save_score(first, "helpful", score, reason=reason)
    storage.save_score(first, "polite", 1)
    storage.create_run(
        agent_name="support",
        thread_id=thread.id,
        resource_id=owner,
        status="suspended",
        suspend_reason="approval",
        usage={"inputTokens": 2630, "outputTokens": 148, "model": "claude-sonnet"},
        pending_approvals=[
            {
                "toolCallId": f"refund-{thread.id}",
                "displayToolName": "Refund an order",
                "displayArgs": {"order": "A17", "customer": "Ada", "amount": "42.00 EUR"},
                "expiresAt": now() + timedelta(days=2),
            }
        ],
    )
    storage.save_working_memory(thread.id, "thread", {"order": "A17", "wants": "refund", "mood": ["polite", "sad"]})
    storage.save_working_memory(owner, "resource", {"name": "Ada", "favourite": {"tea": "Sencha"}, "orders": 12})
    at = now() - timedelta(minutes=14)
    for place, row in enumerate(AgentMessage.everyones.filter(thread_id=thread.id).order_by("created_at", "place")):
        AgentMessage.everyones.filter(pk=row.pk).update(created_at=at + timedelta(seconds=70 * place))
    AgentRun.everyones.filter(pk=first).update(created_at=at, updated_at=at + timedelta(seconds=9))
    return thread.id


def many_messages(thread_id: str, count: int, *, content: Any = "a word", calls: int = 0) -> None:
    """So many messages, a second apart, each with so many tool calls; quicker than the service writes them."""
    started = now() - timedelta(days=1)
    rows = [
        AgentMessage(
            id=f"{thread_id}-{number:06}",
            thread_id=thread_id,
            role="user" if number % 2 == 0 else "assistant",
            content=f"{number} {content}" if isinstance(content, str) else content,
            created_at=started + timedelta(seconds=number),
            place=new_id(),
        )
        for number in range(count)
    ]
    AgentMessage.everyones.bulk_create(rows, batch_size=500)
    asked = [
        AgentToolCall(
            id=f"{row.pk}-{place}",
            thread_id=thread_id,
            message_id=row.pk,
            tool_name="look_up",
            args={"number": place, "what": "x" * 200},
            result='{"found": true}',
            created_at=row.created_at,
            place=place,
        )
        for row in rows
        for place in range(calls)
    ]
    AgentToolCall.everyones.bulk_create(asked, batch_size=500)


def touched(thread_ids: Sequence[str], at: datetime) -> None:
    """Let the threads have changed one second after the other, the first one last."""
    for place, thread_id in enumerate(thread_ids):
        AgentThread.everyones.filter(pk=thread_id).update(updated_at=at - timedelta(seconds=place))
