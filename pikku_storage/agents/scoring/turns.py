"""What is graded: one turn of a conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pikku_storage.agents.records import AgentRun, Message
from pikku_storage.agents.statuses import TOOL, AgentRunStatus
from pikku_storage.json import Json

_ERROR = "error"
_WITHOUT_ANSWER = (AgentRunStatus.FAILED, AgentRunStatus.INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A call of a tool, and what it answered; `None` if it did not."""

    name: str
    args: Json = None
    result: str | None = None

    @property
    def failure(self) -> str | None:
        """What went wrong, as far as can be told: there is no result, or it is `Error…` or an object with `error`."""
        if self.result is None:
            return "no result"
        if self.result.lower().startswith(_ERROR):
            return self.result
        try:
            said = json.loads(self.result)
        except (ValueError, RecursionError):
            return None
        error = said.get(_ERROR) if isinstance(said, dict) else None
        return None if not error else error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What somebody said, what the agent answered in the end, and the tools it called in between.

    `messages` is the conversation up to there, and `run` the stored run; a turn that is made up for a test may have
    neither.
    """

    input: str = ""
    output: str = ""
    tools: tuple[ToolUse, ...] = ()
    messages: tuple[Message, ...] = ()
    run: AgentRun | None = None

    @classmethod
    def of(cls, messages: Sequence[Message], run: AgentRun | None = None) -> Self:
        """The last turn of a conversation that the agent answered: what a user said after it belongs to another one. A
        run that failed has no answer but its own."""
        ends = [place for place, message in enumerate(messages) if message.role == "assistant"]
        if run is not None and run.status in _WITHOUT_ANSWER:
            ends = [place for place in ends if _is_since(messages[place], run)]
        end = ends[-1] + 1 if ends else len(messages)
        # Results of the calls of the last message follow it.
        while end < len(messages) and messages[end].role == TOOL:
            end += 1
        asked = [place for place, message in enumerate(messages[:end]) if message.role == "user"]
        begin = asked[-1] if asked else 0
        turn = messages[begin:end]
        results = {result.id: result.result for message in turn for result in message.tool_results}
        return cls(
            input=text_of(messages[begin].content) if asked else "",
            output=text_of(messages[ends[-1]].content) if ends else "",
            tools=tuple(
                ToolUse(name=call.name, args=call.args, result=results.get(call.id))
                for message in turn
                for call in message.tool_calls
            ),
            messages=tuple(messages[:end]),
            run=run,
        )


def _is_since(message: Message, run: AgentRun) -> bool:
    return message.created_at is not None and message.created_at >= run.created_at


def text_of(content: Json) -> str:
    """What is said: a text, the texts of a list of parts, or else JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)
    return json.dumps(content, ensure_ascii=False)
