"""An event on its way: what was said about a topic, and by which channel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pikku_storage.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`sender` is the channel that is not told; `None` if everybody is."""

    topic: str
    data: Json = None
    sender: str | None = None

    def encode(self, instance: str) -> str:
        """As the contract's event hub sends it (contract services.md §10), with the sender beside, as `from`."""
        message = {"instanceId": instance, "topic": self.topic, "data": self.data}
        if self.sender is not None:
            message["from"] = self.sender
        return json.dumps(message, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def decode(cls, message: Mapping[str, Any]) -> Self:
        """What such a message says. Raises `ValueError`."""
        topic, sender = message.get("topic"), message.get("from")
        if not isinstance(topic, str) or not isinstance(sender, str | None):
            raise ValueError("an event has a topic")
        return cls(topic=topic, data=message.get("data"), sender=sender)


def parse(text: str | bytes) -> dict[str, Any]:
    """The object that a message is. Raises `ValueError`."""
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message
