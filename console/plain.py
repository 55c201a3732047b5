"""Stored values as they are, outside of any page: nothing in them is markup, and nothing of them runs."""

from __future__ import annotations

from django.http import HttpResponse
from django.utils.http import content_disposition_header

from console.jsontree import as_text
from pikku_storage.json import Json

_HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox"}


def json_text(value: Json) -> HttpResponse:
    """A value as JSON, indented."""
    return _answer(as_text(value), "application/json")


def plain_text(text: str, content_type: str = "text/plain") -> HttpResponse:
    """A text as it is stored."""
    return _answer(text, content_type)


def json_file(text: str, name: str) -> HttpResponse:
    """JSON to be saved under that name."""
    response = _answer(text, "application/json")
    response.headers["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    return response


def _answer(text: str, content_type: str) -> HttpResponse:
    # What another program stored may hold halves of characters.
    body = text.encode("utf-8", "replace")
    return HttpResponse(body, content_type=f"{content_type}; charset=utf-8", headers=_HEADERS)
