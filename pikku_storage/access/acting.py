"""Whose work is being done: the id of the acting user, wherever the code is called from (contract services.md §11).

The innermost place counts: an `acting_as` block, a workflow (its owner, in the body and in its steps), a request (who
is signed in, by `ActingUserMiddleware`), a Celery task (who acted where it was sent, by `carry_through_celery`). Inside
a run without an owner, or a request of nobody, nobody acts, whoever acted around it.

It is kept in a context variable, so threads, asyncio tasks and greenlets each have their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, TypeAlias

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware

from pikku_storage.access.actors import user_id_of

_Acting: TypeAlias = "str | HttpRequest | None"
_acting: ContextVar[_Acting] = ContextVar("pikku_acting_user", default=None)


def current_user_id() -> str | None:
    """The id of the acting user as text; `None` for nobody.

    In an async view, where the user of the request may have to be read first, use `acurrent_user_id`.
    """
    acting = _acting.get()
    return _signed_in(acting) if isinstance(acting, HttpRequest) else acting


async def acurrent_user_id() -> str | None:
    """Async twin of `current_user_id`."""
    return await sync_to_async(current_user_id)()


@contextmanager
def acting_as(user: Any) -> Iterator[None]:
    """Inside the block this user acts, told by a Django user or an id; `None` for nobody."""
    is_anonymous = getattr(user, "is_anonymous", False)
    token = begin(None if is_anonymous else user_id_of(user, role="acting user"))
    try:
        yield
    finally:
        end(token)


def begin(acting: _Acting) -> Token[_Acting]:
    """For whoever cannot write a block: from now on this user acts, or whoever is signed in, until `end`."""
    return _acting.set(acting)


def end(token: Token[_Acting]) -> None:
    """See `begin`; in the same thread or task."""
    _acting.reset(token)


def _signed_in(request: HttpRequest) -> str | None:
    user: Any = getattr(request, "user", None)
    return user_id_of(user, role="acting user") if getattr(user, "is_authenticated", False) else None


@sync_and_async_middleware
def ActingUserMiddleware(get_response: Any) -> Any:  # noqa: N802 - named as middleware is
    """Inside a request whoever is signed in acts. Put it below `AuthenticationMiddleware`.

    The user is read when somebody asks for it.
    """
    if iscoroutinefunction(get_response):

        async def amiddleware(request: HttpRequest) -> Any:
            token = begin(request)
            try:
                return await get_response(request)
            finally:
                end(token)

        return amiddleware

    def middleware(request: HttpRequest) -> Any:
        token = begin(request)
        try:
            return get_response(request)
        finally:
            end(token)

    return middleware
