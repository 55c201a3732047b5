"""A value that must be asked for to be seen."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NoReturn, Self, final

from pikku_storage.exceptions import PayloadError
from pikku_storage.json import Json, to_json

REDACTED = "[secret]"


@final
class SecretValue:
    """A secret's value. `reveal()` answers with it; everything else shows `[secret]`, or refuses.

    Equal to a value, and to another `SecretValue`, that reveals the same.
    """

    __slots__ = ("__value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Json) -> None:
        self.__value = value

    def reveal(self) -> Json:
        """The value itself, a new copy each time."""
        return deepcopy(self.__value)

    def __repr__(self) -> str:
        return REDACTED

    def __format__(self, spec: str) -> str:
        return format(REDACTED, spec)

    def __eq__(self, other: object) -> bool:
        return bool(self.reveal() == reveal(other))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError("A SecretValue cannot be pickled: reveal it where it is needed")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self.__getstate__()


def reveal(value: Any) -> Any:
    """What a `SecretValue` reveals; any other value as it is."""
    return value.reveal() if isinstance(value, SecretValue) else value


def hide(value: Any) -> SecretValue:
    """The value as a `SecretValue`, if it is not one already."""
    return value if isinstance(value, SecretValue) else SecretValue(value)


def plain(value: SecretValue, *, root: str) -> SecretValue:
    """A plain JSON copy. Raises `PayloadError` as `to_json` does, but without a path, which may tell of the value."""
    try:
        return SecretValue(to_json(value.reveal()))
    except PayloadError as error:
        # The one reason that quotes something.
        reason = "a key is not a str" if error.reason.startswith("the key ") else error.reason
    # Out here, so that nobody who shows this error also shows the frames of the other one.
    raise PayloadError(root, reason)
