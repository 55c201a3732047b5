"""Bytes and texts that must not be seen."""

from __future__ import annotations

from typing import NoReturn


class HiddenBytes(bytes):
    """A key or a plaintext. A traceback, a log line or a debug page that shows it shows nothing."""

    def __repr__(self) -> str:
        return "<hidden>"

    __str__ = __repr__

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("Keys and plaintexts stay in the memory of this process; they cannot be pickled")


class HiddenText(str):
    """A secret of the settings. It is a text like any other, but a traceback or a debug page that shows it shows
    nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<hidden>"
