"""A page of a conversation as it is shown: contents in parts, calls of tools with what they answered.

A page bears a bounded weight: each text is cut, and all of them together; the whole of each is a link away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.html import escape
from django.utils.translation import pgettext_lazy

from console.agents.addresses import ThreadUrls, approval_url
from console.agents.parts import Part, parts_of, parts_of_beginning
from console.agents.reads import BEGINNING, MessagePage
from console.agents.resources import name_of
from console.jsontree import as_text
from pikku_storage.agents.statuses import ApprovalStatus

_ALL_TEXT = 100_000
_TEXT = 3000
_JSON = 1500
_PARTS = 40
_AUTHORS = {
    "user": pgettext_lazy("author of a message", "user"),
    "assistant": pgettext_lazy("author of a message", "assistant"),
    "tool": pgettext_lazy("author of a message", "tool"),
    "system": pgettext_lazy("author of a message", "system"),
}
"""By role, the word for it; another role reads as it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A text as shown, and whether that is not all of it."""

    text: str
    is_cut: bool


class Allowance:
    """How many characters of HTML texts may still take on a page."""

    def __init__(self, characters: int = _ALL_TEXT) -> None:
        self._left = characters

    def take(self, text: str, longest: int, *, is_cut: bool = False) -> Shown:
        """As much of the text as there is room for."""
        beginning = text[: max(0, min(longest, self._left))]
        # Halves of characters, which other programs may store, cannot be sent.
        shown = beginning.encode("utf-8", "replace").decode()
        self._left -= len(escape(shown))
        return Shown(text=shown, is_cut=is_cut or len(beginning) < len(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """A part of a message."""

    part: Part
    shown: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """A call of a tool."""

    id: str
    name: str
    tool: str
    """The tool's own name, where another one is shown to people."""
    status: str
    """Of its approval; empty if it needs none."""
    arguments: Shown
    arguments_url: str
    result: Shown | None
    result_url: str
    is_error: bool
    sub_run_id: str
    approval_url: str
    resolved_at: datetime | None
    resolved_by: str
    reason: Shown
    workflow_run: Mapping[str, Any] | None

    @property
    def waits(self) -> bool:
        """Whether somebody has to answer first."""
        return self.status == ApprovalStatus.PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """A message."""

    id: str
    role: str
    created_at: datetime
    parts: list[PartView]
    calls: list[CallView]
    url: str
    is_cut: bool

    @property
    def author(self) -> str:
        """The role, in words."""
        return str(_AUTHORS.get(self.role, self.role))


class Conversation:
    """The messages of a page."""

    def __init__(
        self,
        page: MessagePage,
        urls: ThreadUrls,
        *,
        site: str,
        now: datetime,
        names: Mapping[str, str],
        workflow_runs: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.has_older, self.has_newer, self.has_more_calls = page.has_older, page.has_newer, page.has_more_calls
        self._urls, self._site, self._now = urls, site, now
        self._names, self._workflow_runs = names, workflow_runs
        self._allowance = Allowance()
        self.messages = [self._message(row, page.calls.get(row["id"], [])) for row in page.rows]

    @property
    def first_id(self) -> str:
        """The id of the oldest message here."""
        return self.messages[0].id if self.messages else ""

    @property
    def last_id(self) -> str:
        """The id of the newest message here."""
        return self.messages[-1].id if self.messages else ""

    def _message(self, row: Mapping[str, Any], calls: list[dict[str, Any]]) -> MessageView:
        found, is_cut = _parts(row["beginning"])
        views = [self._part(part, is_cut=is_cut and part is found[-1]) for part in found[:_PARTS]]
        return MessageView(
            id=row["id"],
            role=row["role"],
            created_at=row["created_at"],
            parts=views,
            calls=[self._call(call) for call in calls],
            url=self._urls.message(row["id"]),
            is_cut=is_cut or len(found) > _PARTS or any(view.shown.is_cut for view in views),
        )

    def _part(self, part: Part, *, is_cut: bool) -> PartView:
        longest = _TEXT if part.kind in {"text", "reasoning"} else _JSON
        return PartView(part=part, shown=self._allowance.take(part.text, longest, is_cut=is_cut))

    def _call(self, call: Mapping[str, Any]) -> CallView:
        told = call["told"]
        result, is_error = ("", False) if told is None else _result(told)
        return CallView(
            id=call["id"],
            name=call["display_tool_name"] or call["tool_name"],
            tool=call["tool_name"] if call["display_tool_name"] else "",
            status=status_of(call, self._now),
            arguments=self._allowance.take(_indented(call["arguments"]), _JSON),
            arguments_url=self._urls.call(call["id"], "args"),
            result=None if told is None else self._allowance.take(result, _JSON),
            result_url=self._urls.call(call["id"], "result"),
            is_error=is_error,
            sub_run_id=call["agent_run_id"] or "",
            approval_url=approval_url(call["id"], self._site) if call["approval_status"] else "",
            resolved_at=call["approval_resolved_at"],
            resolved_by=name_of(call["approval_resolved_by"], self._names),
            reason=self._allowance.take(call["why"] or "", _JSON),
            workflow_run=self._workflow_runs.get(call["id"]),
        )


def status_of(call: Mapping[str, Any], now: datetime) -> str:
    """What became of the approval of a call; one whose time is over has expired. Empty if none was asked for."""
    status, expires_at = call["approval_status"], call["approval_expires_at"]
    is_over = status == ApprovalStatus.PENDING and expires_at is not None and expires_at <= now
    return ApprovalStatus.EXPIRED if is_over else status or ""


def _parts(beginning: str | None) -> tuple[list[Part], bool]:
    if beginning is None:
        return [], False
    if len(beginning) > BEGINNING:
        return parts_of_beginning(beginning[:BEGINNING]), True
    try:
        return parts_of(json.loads(beginning)), False
    except ValueError:
        return [Part(kind="json", text=beginning)], False


def _indented(text: str | None) -> str:
    if text is None or len(text) > BEGINNING:
        return text or ""
    try:
        return as_text(json.loads(text))
    except ValueError:
        return text


def _result(text: str) -> tuple[str, bool]:
    """What a tool answered as one reads it, and whether it says that it failed."""
    if len(text) > BEGINNING:
        return text, False
    try:
        value = json.loads(text)
    except ValueError:
        return text, False
    if not isinstance(value, dict | list):
        return text, False
    failed = isinstance(value, dict) and any(value.get(name) for name in ("error", "isError", "is_error"))
    return as_text(value), failed
