"""What a request says: a JSON object, and the header `Idempotency-Key`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from hashlib import sha256
from typing import NoReturn

from django.http import HttpRequest

from pikku_storage.json import Json
from pikku_storage.workflows.http.errors import MalformedRequestError, UnsupportedMediaTypeError

CONTENT_TYPE = "application/json"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def body_of(request: HttpRequest, *, keys: Collection[str], required: Collection[str] = ()) -> dict[str, Json]:
    """The JSON object in the body; without a body an empty one.

    Raises `UnsupportedMediaTypeError`, `RequestDataTooBig`, and `MalformedRequestError` for what is no JSON object, for
    other keys than `keys`, and if one of the `required` is missing.
    """
    found = _object_in(request)
    problems = [
        *(f"unexpected key {name!r}" for name in found if name not in keys),
        *(f"missing key {name!r}" for name in required if name not in found),
    ]
    if problems:
        raise MalformedRequestError(f"The body is an object with {', '.join(keys)}: {'; '.join(problems)}")
    return found


def _object_in(request: HttpRequest) -> dict[str, Json]:
    raw = request.body
    if not raw:
        return {}
    if request.content_type != CONTENT_TYPE:
        raise UnsupportedMediaTypeError(f"The body must be {CONTENT_TYPE}, not {request.content_type or 'unnamed'}")
    try:
        found = json.loads(raw.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        # What a decoder says of bytes repeats them, all of them.
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise MalformedRequestError(f"The body is not JSON: {what}") from None
    if not isinstance(found, dict):
        raise MalformedRequestError(f"The body must be an object, not {type(found).__name__}")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def idempotency_key_of(request: HttpRequest, user_id: str) -> str | None:
    """What the header `Idempotency-Key` comes to, which belongs to this user: others with the same header get another
    one. `None` without the header. Raises `MalformedRequestError`."""
    given = request.headers.get("Idempotency-Key")
    if given is None:
        return None
    if not _KEY.fullmatch(given):
        raise MalformedRequestError("Idempotency-Key must be 1 to 255 visible ASCII characters")
    # As JSON, so that no user id and key together look like another user's.
    return "http:" + sha256(json.dumps([user_id, given]).encode()).hexdigest()
