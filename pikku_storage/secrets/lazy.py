"""A secret in Django's settings, which are read before there is a database."""

from __future__ import annotations

from typing import Any, cast

from pikku_storage.exceptions import SecretError, SecretNotFoundError

_NOT_OF_A_TEXT = {"__getattribute__", "__getnewargs__", "__new__", "__repr__", "__sizeof__"}


class LazySecret:
    """Behaves as the text it stands for, which it looks up each time it is used. Its `repr` shows its name only."""

    def __init__(self, key: str, field: str | None, default: str | None) -> None:
        self._key = key
        self._field = field
        self._default = default

    def __repr__(self) -> str:
        return f"<secret {self._key!r}>"

    def __radd__(self, other: str) -> str:
        return other + self._resolve()

    def __reduce_ex__(self, protocol: object) -> Any:
        return type(self), (self._key, self._field, self._default)

    def _resolve(self) -> str:
        # Django's apps are not ready when the settings import this module.
        from pikku_storage.secrets.service import SecretService

        try:
            value = SecretService().get_secret(self._key).reveal()
        except SecretNotFoundError:
            if self._default is None:
                raise
            return self._default
        if self._field is not None:
            value = value.get(self._field) if isinstance(value, dict) else None
        if not isinstance(value, str):
            where = "" if self._field is None else f", field {self._field!r},"
            del value
            raise SecretError(f"Secret {self._key!r}{where} is no text, so it cannot stand in the settings")
        return value


def _as_text(name: str) -> Any:
    def method(self: LazySecret, *args: Any, **options: Any) -> Any:
        return getattr(self._resolve(), name)(*args, **options)

    method.__name__ = name
    return method


def _methods_of_a_text() -> list[str]:
    own = [name for name in dir(str) if getattr(str, name) is not getattr(object, name, None)]
    return [name for name in own if callable(getattr(str, name)) and name not in _NOT_OF_A_TEXT]


for _name in _methods_of_a_text():
    setattr(LazySecret, _name, _as_text(_name))


def secret(key: str, *, field: str | None = None, default: str | None = None) -> str:
    """For a settings file: the secret of that name, looked up whenever it is used.

    `field` picks one text of a secret that is a JSON object. Without a `default`, `SecretNotFoundError` is raised where
    it is used. To a type checker, and to most code, it is a text.
    """
    return cast("str", LazySecret(key, field, default))
