"""Identifiers: random ones for rows, derived ones where the same input must give the same row."""

from __future__ import annotations

import os
import threading
import time
import uuid
from functools import lru_cache
from hashlib import sha1

INVOCATION_NAMESPACE = uuid.UUID("70696b6b-7500-5770-9f6c-6f77000a0001")
"""Namespace of invocation ids (contract services.md §1.2)."""

_INVOCATION_BYTES = INVOCATION_NAMESPACE.bytes
_DERIVED_BYTES = uuid.uuid5(INVOCATION_NAMESPACE, "django-pikku-storage").bytes
_TICK_NS = 245
_TIME = len("00000000-0000-7000")
"""How many characters of an id of version 7 are time and version."""
# One step asks for the same derived ids when it starts, when it ends and when the next one begins.
_RECENT = 256
_lock = threading.Lock()
_last_stamp = 0


@lru_cache(maxsize=_RECENT)
def invocation_id(run_id: str, step_name: str) -> str:
    """The id of a step's work: the same for every attempt, different for every step and run (contract services.md
    §1.2)."""
    return _uuid5(_INVOCATION_BYTES, f"{run_id}:{step_name}")


def new_id() -> str:
    """A new UUID (version 7) as lower-case text.

    Ids of one process sort in the order they were made: rows that share a millisecond still list in order, and new keys
    land at the end of an index instead of all over it.
    """
    global _last_stamp
    with _lock:
        # 12 bits divide a millisecond into ticks of 245 ns (RFC 9562 §6.2, method 3); no tick is given out twice.
        _last_stamp = stamp = max(_last_stamp + 1, time.time_ns() // _TICK_NS)
    milliseconds, nanoseconds = divmod(stamp * _TICK_NS, 1_000_000)
    bits = (milliseconds & ((1 << 48) - 1)) << 80
    bits |= nanoseconds // _TICK_NS << 64
    bits |= int.from_bytes(os.urandom(8), "big") >> 2
    return _text(bits, version=7)


@lru_cache(maxsize=_RECENT)
def derived_id(*parts: str) -> str:
    """A UUID (version 5) made from `parts`; writing a row with a derived id twice is the same row."""
    return _uuid5(_DERIVED_BYTES, "\x1f".join(parts))


def copied_id(original: str, *parts: str) -> str:
    """A UUID for a copy of the row `original`, made from `parts` as in `derived_id`. It has the time of the original's,
    so that copies sort as their originals do, and before what is new."""
    return original[:_TIME] + derived_id(*parts)[_TIME:]


def child_run_id(step_id: str, attempt: int) -> str:
    """The id of the run that does that attempt of a step: starting it twice is the same run, and a further attempt is
    another one."""
    return derived_id("child", step_id, str(attempt))


# As the `uuid` module does it, without its objects: every step takes three of them.


def _uuid5(namespace: bytes, name: str) -> str:
    digest = sha1(namespace + name.encode(), usedforsecurity=False).digest()
    return _text(int.from_bytes(digest[:16], "big"), version=5)


def _text(bits: int, *, version: int) -> str:
    bits = bits & ~(0xF << 76 | 0b11 << 62) | version << 76 | 0b10 << 62
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def new_token() -> str:
    """A random token that names one claim, pass or wake-up; compared for equality only."""
    return os.urandom(16).hex()
