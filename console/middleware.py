"""Times in the zone of whoever looks at them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo, available_timezones

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

COOKIE = "pikku_zone"
"""Set by the console's own script, to what the browser says."""


@sync_and_async_middleware
def viewer_zone(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Middleware: answer in the time zone of the caller's browser, once a page of the console has told it.

    A project that chooses the zone by itself does not need it.
    """
    if iscoroutinefunction(get_response):

        async def asynchronously(request: HttpRequest) -> HttpResponse:
            with _zone_of(request):
                answer: Awaitable[HttpResponse] = get_response(request)
                return await answer

        return asynchronously

    def synchronously(request: HttpRequest) -> HttpResponse:
        with _zone_of(request):
            response: HttpResponse = get_response(request)
            return response

    return synchronously


def _zone_of(request: HttpRequest) -> AbstractContextManager[Any]:
    name = unquote(request.COOKIES.get(COOKIE, ""))
    # Only names that there are: `ZoneInfo` would look for files.
    return timezone.override(ZoneInfo(name)) if name in available_timezones() else nullcontext()
