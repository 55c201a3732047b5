"""What callers hand in, checked and made plain before anything is written.

Records, and mappings with the contract's names (`toolCalls`, `createdAt`) or ours (`tool_calls`, `created_at`), mean
the same. Errors name the path of what is wrong: `$messages[2].content`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from pikku_storage.agents.records import Approval, Message, ToolCall, ToolResult, Usage
from pikku_storage.agents.statuses import TOOL, ApprovalType
from pikku_storage.exceptions import AgentInputError
from pikku_storage.ids import new_id
from pikku_storage.json import to_json, to_text

_WORD = re.compile("([A-Z])")
LONGEST_ROLE = 50
_IGNORED = frozenset({"agent_name", "credential_name", "credential_type", "connect_url", "reason"})
"""What the contract's approvals hold beside, and do not keep."""


def messages(given: Iterable[Any]) -> list[Message]:
    """The messages, with an id each. Raises `AgentInputError` and `PayloadError`."""
    found = [_message(each, f"$messages[{index}]") for index, each in enumerate(given)]
    _check_once("message", [message.id for message in found if message.role != TOOL])
    _check_once("tool call", [call.id for message in found for call in message.tool_calls])
    return found


def approvals(given: Iterable[Any]) -> list[Approval]:
    """The approvals that a run asks for."""
    found = [_approval(each, f"$pending_approvals[{index}]") for index, each in enumerate(given)]
    _check_once("tool call", [approval.tool_call_id for approval in found])
    return found


def named(given: Any, fields: Mapping[str, Any], *, allowed: Iterable[str]) -> dict[str, Any]:
    """The values of a mapping and of keywords, by our names. Raises `AgentInputError` for others than the allowed."""
    if given is not None and not isinstance(given, Mapping):
        raise AgentInputError(f"Must be a mapping or keywords, not {type(given).__name__}")
    values = {_ours(name): value for name, value in {**(given or {}), **fields}.items()}
    unknown = sorted(values.keys() - set(allowed))
    if unknown:
        raise AgentInputError(f"Unknown {', '.join(unknown)}; there are {', '.join(sorted(allowed))}")
    return values


def usage(given: Any) -> Usage:
    """The tokens of a run."""
    if given is None:
        return Usage()
    values = _values(given, Usage, "$usage")
    tokens = {name: _count(values.get(name, 0), f"$usage.{name}") for name in ("input_tokens", "output_tokens")}
    model = values.get("model") or ""
    return Usage(**tokens, model=model and to_text(model, root="$usage.model"))


def one_of(value: object, allowed: Iterable[str], *, name: str) -> str:
    """The value, if it is one of those. Raises `AgentInputError`."""
    allowed = list(allowed)
    if value not in allowed:
        raise AgentInputError(f"{name} is one of {', '.join(allowed)}; not {value!r}")
    return str(value)


def moment(value: Any, *, root: str) -> datetime:
    """An aware time, of a `datetime` or an ISO text."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise AgentInputError(f"{root}: {value!r} is no time; write it as in ISO 8601") from None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise AgentInputError(f"{root}: must be a time with a time zone")
    return value


def _message(given: Any, root: str) -> Message:
    values = _values(given, Message, root)
    role = to_text(values.get("role"), root=f"{root}.role", longest=LONGEST_ROLE)
    results = tuple(
        _result(each, f"{root}.tool_results[{index}]") for index, each in enumerate(values.get("tool_results") or ())
    )
    if results and role != TOOL:
        raise AgentInputError(f"{root}: tool results belong to a message of the role 'tool', not {role!r}")
    return Message(
        id=to_text(values.get("id") or new_id(), root=f"{root}.id"),
        role=role,
        content=to_json(values.get("content"), root=f"{root}.content"),
        tool_calls=tuple(
            _call(each, f"{root}.tool_calls[{index}]") for index, each in enumerate(values.get("tool_calls") or ())
        ),
        tool_results=results,
        created_at=None
        if values.get("created_at") is None
        else moment(values["created_at"], root=f"{root}.created_at"),
    )


def _call(given: Any, root: str) -> ToolCall:
    values = _values(given, ToolCall, root)
    return ToolCall(
        id=to_text(values.get("id"), root=f"{root}.id"),
        name=to_text(values.get("name"), root=f"{root}.name"),
        args=to_json(values.get("args", {}), root=f"{root}.args"),
    )


def _result(given: Any, root: str) -> ToolResult:
    values = _values(given, ToolResult, root)
    result = to_json(values.get("result"), root=f"{root}.result")
    # Models are told text, and the table keeps text: what is none is its JSON.
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return ToolResult(id=to_text(values.get("id"), root=f"{root}.id"), name=str(values.get("name") or ""), result=text)


def _approval(given: Any, root: str) -> Approval:
    values = _values(given, Approval, root)
    kind = values.get("type") or ApprovalType.TOOL_CALL
    # A request for a credential waits as a tool call does (contract tables.md §3, 20).
    kind = ApprovalType.TOOL_CALL if kind == "credential-request" else kind
    return Approval(
        tool_call_id=to_text(values.get("tool_call_id"), root=f"{root}.tool_call_id"),
        type=one_of(kind, ApprovalType.values, name=f"{root}.type"),
        agent_run_id=_optional_text(values, "agent_run_id", root),
        display_tool_name=_optional_text(values, "display_tool_name", root),
        display_args=to_json(values.get("display_args"), root=f"{root}.display_args"),
        expires_at=None
        if values.get("expires_at") is None
        else moment(values["expires_at"], root=f"{root}.expires_at"),
    )


def _optional_text(values: Mapping[str, Any], name: str, root: str) -> str | None:
    return None if values.get(name) is None else to_text(values[name], root=f"{root}.{name}")


def _count(value: Any, root: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise AgentInputError(f"{root}: a number of tokens is a whole number from 0, not {value!r}")
    return int(to_json(value, root=root))


def _check_once(kind: str, ids: list[str]) -> None:
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            raise AgentInputError(f"The {kind} id {each} stands twice in one batch")
        seen.add(each)


def _values(given: Any, record: type[Any], root: str) -> dict[str, Any]:
    """The values by our names, whichever way they were handed in."""
    names = {each.name for each in fields(record)}
    if is_dataclass(given) and not isinstance(given, type):
        return {each.name: getattr(given, each.name) for each in fields(given) if each.name in names}
    if not isinstance(given, Mapping):
        raise AgentInputError(f"{root}: must be a mapping or a {record.__name__}, not {type(given).__name__}")
    values = {_ours(name): value for name, value in given.items()}
    unknown = sorted(values.keys() - names - _IGNORED)
    if unknown:
        raise AgentInputError(
            f"{root}: unknown {', '.join(unknown)}; a {record.__name__} has {', '.join(sorted(names))}"
        )
    return values


def _ours(name: object) -> str:
    """`createdAt` as `created_at`."""
    return _WORD.sub(lambda match: f"_{match[1].lower()}", str(name))
