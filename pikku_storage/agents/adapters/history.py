"""What the adapters of message formats share.

What a format has and our tables have not is kept beside what they have, so that nothing is lost:

* An id of a tool call is unique in its message only, as providers make them. Here it becomes `<message id>:<id>`.
* A message that our columns do not hold exactly has a last part of content that does, such as
  `{"type": "openai", "message": …}`.
* A result that is more than a text is the JSON of the same.

A message is taken apart, put together again, and compared: only if it differs it is kept whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.records import Message
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.exceptions import AgentInputError
from pikku_storage.ids import derived_id, new_id
from pikku_storage.json import Json

RECENT = 50
"""Among how many of the last messages the call of a result is looked for first."""
_RESULTS = "tool-results-"


class ThreadHistory(AsyncTwins):
    """The messages of one thread. `storage` is an `AgentAccess`, which keeps to what its session may reach, or the
    `AgentStorageService`, which may do everything. Every public method has an async twin."""

    def __init__(self, storage: AgentAccess | AgentStorageService, thread_id: str) -> None:
        self.thread_id = thread_id
        self._storage = storage

    def _read(self, last_n: int | None = None) -> list[Message]:
        if isinstance(self._storage, AgentAccess):
            return self._storage.get_thread_messages(self.thread_id, last_n=last_n)
        return self._storage.get_messages(self.thread_id, last_n=last_n)

    def _write(self, messages: list[Message]) -> list[Message]:
        self._storage.save_messages(self.thread_id, messages)
        return messages

    def _ids(self, key: str | None) -> Iterator[str]:
        """Ids for the messages of a batch: with a key always the same ones."""
        place = 0
        while True:
            yield new_id() if key is None else derived_id("history", self.thread_id, key, str(place))
            place += 1

    def _calls(
        self, messages: list[dict[str, Any]], answered: Callable[[Iterable[dict[str, Any]]], Iterable[str]]
    ) -> Calls:
        """The calls from before that the messages answer, by what `answered` says of them."""
        wanted = set(answered(messages))
        calls = Calls()
        for last_n in (RECENT, None) if wanted else ():
            calls = Calls(self._read(last_n))
            if wanted <= calls.originals:
                break
        return calls


class Calls:
    """Which call an id of the format means: the newest one that has it."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._ids: dict[str, tuple[str, str]] = {}
        self.last: list[str] = []
        """The ids in the format of the calls of the newest message with calls."""
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        """Go on with a later message."""
        if message.tool_calls:
            self.last = [original_id(message.id, call.id) for call in message.tool_calls]
            of_message = zip(self.last, message.tool_calls, strict=True)
            self._ids |= {original: (call.id, call.name) for original, call in of_message}

    @property
    def originals(self) -> set[str]:
        """All ids in the format."""
        return set(self._ids)

    def find(self, original: str) -> tuple[str, str]:
        """Our id of a call, and the tool's name. Raises `AgentInputError` if there is no such call."""
        try:
            return self._ids[original]
        except KeyError:
            raise AgentInputError(f"No message before this result asks for the tool call {original}") from None


def call_id(message_id: str, original: str) -> str:
    """Our id of a call of that message."""
    return f"{message_id}:{original}"


def original_id(message_id: str, our_id: str) -> str:
    """The id in the format. A message that holds results may stand for the one that holds their calls."""
    return our_id.removeprefix(f"{message_id.removeprefix(_RESULTS)}:")


@dataclass(frozen=True, slots=True)
class Format:
    """How messages of a format are kept whole where our columns do not hold them."""

    name: str

    def attach(self, message: Message, whole: Json) -> Message:
        """The message with the one of the format beside what is shown of it."""
        content = message.content
        parts = content if isinstance(content, list) else [] if content is None else [text_part(content)]
        return replace(message, content=[*parts, {"type": self.name, "message": whole}])

    def attached(self, content: Json) -> Any:
        """The message of the format, if it is there."""
        last = content[-1] if isinstance(content, list) and content else None
        if isinstance(last, dict) and last.get("type") == self.name and last.keys() == {"type", "message"}:
            return last["message"]
        return None

    def result(self, whole: Mapping[str, Any], plain: Any) -> str:
        """The text of a result: `plain` if that is a text and all there is, and else the JSON of it `whole`."""
        if isinstance(plain, str) and not plain.startswith(self._mark) and whole == {"content": plain}:
            return plain
        return f"{self._mark}{json.dumps(whole, ensure_ascii=False)}}}"

    def whole_result(self, text: str) -> dict[str, Any]:
        """What `result` was given."""
        if text.startswith(self._mark):
            try:
                return dict(json.loads(text)["message"])
            except (ValueError, TypeError):
                # Text of another program that only looks like it.
                pass
        return {"content": text}

    @property
    def _mark(self) -> str:
        return f'{{"type": "{self.name}", "message": '


def text_part(content: Json) -> dict[str, Json]:
    """A part of content as it is shown."""
    return {"type": "text", "text": content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)}


def plain(value: Any) -> Any:
    """Plain data of mappings, lists and the objects of the providers' libraries, which are pydantic models."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", exclude_unset=True)


def plain_message(value: Any) -> dict[str, Any]:
    """As `plain`, for a message. Raises `AgentInputError` unless it is a mapping with a role."""
    message = plain(value)
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise AgentInputError(f"A message is a mapping with a role, not {type(value).__name__}")
    return message


def text_of(mapping: Any, name: str) -> str:
    """The text of that name. Raises `AgentInputError` if there is none."""
    value = mapping.get(name) if isinstance(mapping, Mapping) else None
    if not isinstance(value, str):
        raise AgentInputError(f"{name} must be a text, not {value!r}")
    return value
