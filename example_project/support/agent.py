"""The agent: it answers a message of the customer, and goes on once a colleague has decided.

Whatever it knows is in the thread, so it may stop anywhere and go on in another process. A refund is asked for by an
approval of the tool call; the run of the agent is suspended meanwhile, and nothing waits but a row.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Literal

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils import timezone

from example_project.support import model, tools
from example_project.support.workflows import refund_order
from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.adapters.openai import OpenAIHistory
from pikku_storage.agents.records import AgentRun, Approval, Message, ToolCall, ToolResult
from pikku_storage.agents.runs import AgentRunService
from pikku_storage.agents.statuses import TOOL, AgentRunStatus, ApprovalStatus
from pikku_storage.workflows.service import WorkflowService

NAME = "support"
Decision = Literal["approved", "denied"]
TIME_TO_DECIDE = timedelta(days=2)
MOST_TURNS = 5


class WaitsForColleague(Exception):
    """The customer says something while a colleague still has to decide."""


class SupportAgent:
    """One conversation. `access` is bound to whoever speaks, or decides."""

    def __init__(self, access: AgentAccess, thread_id: str) -> None:
        self.access = access
        self.thread_id = thread_id
        self.history = OpenAIHistory(access, thread_id)

    async def answer(self, text: str) -> None:
        """Answer a message of the customer. Raises `WaitsForColleague`, and `ForbiddenError`."""
        for run in await self.access.alist_runs(thread_id=self.thread_id, status=AgentRunStatus.SUSPENDED, limit=1):
            if (await self.access.aget_run(run.run_id)).pending_approvals:
                raise WaitsForColleague
            # Nobody decided in time, or whoever did was cut off.
            await self._carry_on(run)
        await self.history.aappend([{"role": "user", "content": text}])
        await self._go_on(await self.access.acreate_run(agent_name=NAME, thread_id=self.thread_id))

    async def decide(self, call_id: str, decision: Decision) -> bool:
        """Decide in the name of whoever `access` is bound to, and go on; `False` if there is nothing to decide (any
        more). Of several who decide at once, one does."""
        found = await self.access.afind_run_by_tool_call_id(call_id)
        if found is None or not await self.access.aresolve_approval(call_id, decision):
            return False
        await self._carry_on(found.run)
        return True

    async def _carry_on(self, run: AgentRun) -> None:
        """Tell the model what was decided. May be done again: a result is written once, and a refund given once."""
        for approval in await AgentRunService(self.access.using).aget_run_approvals(run.run_id):
            await self._tell(approval.tool_call_id, tools.REFUND, await self._outcome(approval, run))
        await self.access.aupdate_run(run.run_id, status=AgentRunStatus.RUNNING, suspend_reason=None)
        await self._go_on(run.run_id)

    async def _outcome(self, approval: Approval, run: AgentRun) -> dict[str, Any]:
        if approval.status != ApprovalStatus.APPROVED:
            return {"refund": approval.status}
        # What is done is what was shown; and the key makes it one run of the workflow, however often it is started.
        await WorkflowService().astart_workflow(
            refund_order.name,
            {"order_id": approval.display_args["order"]},
            owner=run.resource_id,
            idempotency_key=approval.tool_call_id,
        )
        return {"refund": "started"}

    async def _go_on(self, run_id: str) -> None:
        """As `_speak`; if that fails, the run says so."""
        try:
            await self._speak(run_id)
        except Exception as error:
            await self.access.aupdate_run(run_id, status=AgentRunStatus.FAILED, error_message=str(error))
            raise

    async def _speak(self, run_id: str) -> None:
        """Let the model speak, and do what it asks for, until it has said all or must wait."""
        customer = await self._customer()
        for _ in range(MOST_TURNS):
            messages = await self.history.amessages()
            (said,) = await self.history.aappend([await model.complete(messages)])
            waiting = [approval for call in said.tool_calls if (approval := await self._call(call, customer))]
            if waiting:
                await self.access.aupdate_run(
                    run_id, status=AgentRunStatus.SUSPENDED, suspend_reason="approval", pending_approvals=waiting
                )
                return
            if not said.tool_calls:
                await self.access.aupdate_run(run_id, status=AgentRunStatus.COMPLETED, usage={"model": model.NAME})
                return
        await self.access.aupdate_run(run_id, status=AgentRunStatus.FAILED, error_message="It went round in circles")

    async def _call(self, call: ToolCall, customer: User) -> dict[str, Any] | None:
        """Do what the model asks for; or answer with the approval that it takes."""
        # Models write what they like.
        order_id = str(call.args.get("order_id")) if isinstance(call.args, dict) else ""
        if call.name == tools.LOOK_UP:
            await self._tell(call.id, call.name, await sync_to_async(tools.look_up_order)(customer, order_id))
            return None
        if call.name == tools.REFUND:
            shown = await sync_to_async(tools.what_to_approve)(customer, order_id)
            if "error" not in shown:
                return {
                    "toolCallId": call.id,
                    "type": "tool-call",
                    "displayToolName": "Refund an order",
                    "displayArgs": shown,
                    "expiresAt": timezone.now() + TIME_TO_DECIDE,
                }
            await self._tell(call.id, call.name, shown)
            return None
        await self._tell(call.id, call.name, {"error": f"there is no tool {call.name}"})
        return None

    async def _tell(self, call_id: str, name: str, result: dict[str, Any]) -> None:
        told = ToolResult(id=call_id, name=name, result=json.dumps(result))
        await self.access.asave_messages(
            self.thread_id, [Message(id=f"told-{call_id}", role=TOOL, tool_results=(told,))]
        )

    async def _customer(self) -> User:
        """Whose thread it is, whoever speaks or decides."""
        thread = await self.access.aget_thread(self.thread_id)
        return await User.objects.aget(pk=thread.resource_id)
