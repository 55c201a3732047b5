"""What callers hand in, checked and made plain before anything is written.

Steps are records, or mappings with the contract's names (`stepIndex`, `intentId`) or ours. Errors name the path of what
is wrong: `$steps[2].ok`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pikku_storage.exceptions import VirtualUserInputError
from pikku_storage.json import Json, to_json, to_json_object, to_text
from pikku_storage.virtual_users.records import VirtualUserStep, columns
from pikku_storage.virtual_users.statuses import Disposition

_WORD = re.compile("([A-Z])")
Check = Callable[[Any, str], Any]


def name(value: Any, root: str) -> str:
    """A text of 1 to 255 characters."""
    return to_text(value, root=root)


def disposition(value: Any, root: str) -> str:
    """One of `Disposition`."""
    if value not in Disposition.values:
        raise VirtualUserInputError(f"{root}: one of {', '.join(Disposition.values)}; not {value!r}")
    return str(value)


def items(value: Any, root: str) -> Json:
    """A list of anything."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise VirtualUserInputError(f"{root}: must be a list, not {type(value).__name__}")
    return to_json(list(value), root=root)


def json(value: Any, root: str) -> Json:
    """Anything."""
    return to_json(value, root=root)


def json_object(value: Any, root: str) -> Json:
    """An object."""
    return to_json_object(value, root=root)


def flag(value: Any, root: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise VirtualUserInputError(f"{root}: must be true or false, not {value!r}")
    return value


def number(value: Any, root: str) -> int:
    """A whole number of at most 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise VirtualUserInputError(f"{root}: must be a whole number, not {value!r}")
    return int(to_json(value, root=root))


def interval(value: Any, root: str) -> int:
    """Milliseconds."""
    if number(value, root) < 0:
        raise VirtualUserInputError(f"{root}: must be a number of milliseconds from 0, not {value!r}")
    return int(value)


def moment(value: Any, root: str) -> datetime:
    """An aware time."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise VirtualUserInputError(f"{root}: must be a time with a time zone")
    return value


def optional(check: Check) -> Check:
    """What `check` takes, or `None`."""
    return lambda value, root: None if value is None else check(value, root)


_STEP: dict[str, Check] = {
    "step_index": number,
    "intent_id": optional(name),
    "action": json,
    "status": optional(number),
    "ok": optional(flag),
    "response": json,
    "finding_kinds": optional(items),
    "tokens_in": number,
    "tokens_out": number,
}


def steps(given: Iterable[Any]) -> list[VirtualUserStep]:
    """The steps of a transcript, each index once."""
    found = [_step(each, f"$steps[{index}]") for index, each in enumerate(given)]
    if len({step.step_index for step in found}) < len(found):
        raise VirtualUserInputError("$steps: an index stands there twice")
    return found


def _step(given: Any, root: str) -> VirtualUserStep:
    if isinstance(given, VirtualUserStep):
        given = asdict(given)
    if not isinstance(given, Mapping):
        raise VirtualUserInputError(f"{root}: must be a mapping or a VirtualUserStep, not {type(given).__name__}")
    values = {_WORD.sub(lambda match: f"_{match[1].lower()}", str(key)): value for key, value in given.items()}
    unknown = sorted(values.keys() - set(columns(VirtualUserStep)))
    if unknown or "step_index" not in values:
        wrong = f"unknown {', '.join(unknown)}" if unknown else "there is no step_index"
        raise VirtualUserInputError(f"{root}: {wrong}")
    return VirtualUserStep(**{key: _STEP[key](value, f"{root}.{key}") for key, value in values.items()})
