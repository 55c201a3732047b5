"""A thread in random order: batches that are new, sent again, half known or in conflict, results, approvals, pages and
deletions. It has what a plain list would have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pikku_storage.agents.runs import AgentRunService
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.exceptions import MessageConflictError
from pikku_storage.ids import new_id

A_TIME = datetime(2026, 3, 2, 9, tzinfo=UTC)

times = st.integers(0, 2).map(lambda seconds: A_TIME + timedelta(seconds=seconds))
names = st.integers(0, 9)
contents = st.sampled_from(["a", "b", None, ["a"]])


class Threads(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.storage = AgentStorageService()
        # Messages of earlier examples are in the same database.
        self.prefix = new_id()
        self.other = self.storage.create_thread("eve").id
        self.begin()

    def begin(self) -> None:
        """A new thread, in which nothing was said."""
        self.thread = self.storage.create_thread("ada").id
        self.run = self.storage.create_run(agent_name="x", thread_id=self.thread, resource_id="ada")
        self.saved: list[tuple[datetime, str, Any]] = []
        """Messages in the order they were saved: time, id, content."""
        self.results: dict[str, str | None] = {}
        self.approvals: dict[str, str] = {}

    def id_of(self, name: int) -> str:
        return f"{self.prefix} {self.thread} {name}"

    @rule(batch=st.lists(st.tuples(names, contents, times), max_size=4, unique_by=lambda each: each[0]))
    def save(self, batch: list[tuple[int, Any, datetime]]) -> None:
        known = {message_id: content for _, message_id, content in self.saved}
        rows = [(at, self.id_of(name), content) for name, content, at in batch]
        messages: list[Any] = [
            {
                "id": message_id,
                "role": "assistant",
                "content": content,
                "created_at": at,
                "tool_calls": [{"id": f"call {message_id}", "name": "add", "args": {}}],
            }
            for at, message_id, content in rows
        ]
        if any(known.get(message_id, content) != content for _, message_id, content in rows):
            with pytest.raises(MessageConflictError):
                self.storage.save_messages(self.thread, messages)
            return
        self.storage.save_messages(self.thread, messages)
        new = [row for row in rows if row[1] not in known]
        self.saved += new
        self.results |= {f"call {message_id}": None for _, message_id, _ in new}

    @rule(name=names)
    def save_elsewhere(self, name: int) -> None:
        taken = any(message_id == self.id_of(name) for _, message_id, _ in self.saved)
        messages: list[Any] = [{"id": self.id_of(name), "role": "assistant", "content": "theirs"}]
        if taken:
            with pytest.raises(MessageConflictError):
                self.storage.save_messages(self.other, messages)

    @rule(name=names, result=st.sampled_from(["", "one", "two"]))
    def answer(self, name: int, result: str) -> None:
        call_id = f"call {self.id_of(name)}"
        told = {"role": "tool", "tool_results": [{"id": call_id, "name": "add", "result": result}]}
        self.storage.save_messages(self.thread, [told])
        if call_id in self.results:
            self.results[call_id] = result

    @rule(asked=st.sets(names, max_size=3))
    def ask(self, asked: set[int]) -> None:
        calls = [f"call {self.id_of(name)}" for name in sorted(asked)]
        self.storage.update_run(self.run, pending_approvals=[{"tool_call_id": call_id} for call_id in calls])
        decided = {call_id: status for call_id, status in self.approvals.items() if status != "pending"}
        waiting = {call_id: "pending" for call_id in calls if call_id in self.results and call_id not in decided}
        self.approvals = decided | waiting

    @rule(name=names, status=st.sampled_from(["approved", "denied"]))
    def decide(self, name: int, status: Any) -> None:
        call_id = f"call {self.id_of(name)}"
        waits = self.approvals.get(call_id) == "pending"
        assert (self.storage.find_run_by_tool_call_id(call_id) is not None) is waits
        assert self.storage.resolve_approval(call_id, status) is waits
        if waits:
            self.approvals[call_id] = status

    @rule()
    def delete(self) -> None:
        self.storage.delete_thread(self.thread)
        assert self.storage.get_messages(self.thread) == []
        self.begin()

    @rule(size=st.integers(1, 4))
    def pages(self, size: int) -> None:
        pages: list[str] = []
        cursor = None
        while page := self.storage.get_messages(self.thread, last_n=size, cursor=cursor):
            pages = [message.id for message in page if message.role != "tool"] + pages
            cursor = page[0].id
        assert pages == self.expected()

    def expected(self) -> list[str]:
        """By time; what has the same time, as it was saved."""
        return [message_id for _, message_id, _ in sorted(self.saved, key=lambda row: row[0])]

    @invariant()
    def it_has_what_a_list_would_have(self) -> None:
        found = self.storage.get_messages(self.thread)
        assert [message.id for message in found if message.role != "tool"] == self.expected()
        told = {result.id: result.result for message in found for result in message.tool_results}
        assert told == {call_id: result for call_id, result in self.results.items() if result is not None}
        approvals = {each.tool_call_id: each.status for each in AgentRunService().get_run_approvals(self.run)}
        assert approvals == self.approvals


@pytest.mark.django_db
def test_a_thread_has_what_a_list_would_have() -> None:
    run_state_machine_as_test(
        Threads,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
