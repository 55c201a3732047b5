"""What all addresses have in common: the method, the caller, the workflow, and errors as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.db import connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from pikku_storage.access.actors import user_id_of
from pikku_storage.workflows.definitions import BaseWorkflow
from pikku_storage.workflows.http.access import served_workflow
from pikku_storage.workflows.http.callers import caller_of
from pikku_storage.workflows.http.errors import ANSWERED, MethodNotAllowedError, NotAuthenticatedError, error_response


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that was let in: by whom, for which workflow."""

    request: HttpRequest
    user: Any
    user_id: str
    definition: BaseWorkflow


View = Callable[..., Any]
"""Answers with a response, or is awaited for one."""


def endpoint(method: str) -> Callable[[View], View]:
    """Make a view of a function that takes a `Call` and the rest of the address: a `def` or an `async def`."""

    def decorate(function: View) -> View:
        view: View

        if iscoroutinefunction(function):

            @wraps(function)
            async def view(request: HttpRequest, name: str, **rest: Any) -> HttpResponseBase:
                try:
                    call = await sync_to_async(_let_in)(request, method, name)
                    response: HttpResponseBase = await function(call, **rest)
                except ANSWERED as error:
                    return error_response(error)
                return response

        else:

            @wraps(function)
            def view(request: HttpRequest, name: str, **rest: Any) -> HttpResponseBase:
                try:
                    response: HttpResponseBase = function(_let_in(request, method, name), **rest)
                except ANSWERED as error:
                    return error_response(error)
                return response

        return _marked(view)

    return decorate


def _let_in(request: HttpRequest, method: str, name: str) -> Call:
    if request.method != method:
        raise MethodNotAllowedError(request.method, method)
    user = caller_of(request)
    user_id = user_id_of(user, role="caller")
    if user_id is None:
        raise NotAuthenticatedError
    return Call(request=request, user=user, user_id=user_id, definition=served_workflow(name))


def _marked(view: View) -> View:
    """CSRF and the need to sign in are this package's own affair, by `callers`. And what is waited for could never
    happen if the start was in a transaction of the request's."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return login_not_required(csrf_exempt(view))
