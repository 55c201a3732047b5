"""Files of a local folder, for whoever has a signed address: without a session, and until it expires."""

from __future__ import annotations

import logging
import os
import stat
import time
from pathlib import Path

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ImproperlyConfigured, SuspiciousFileOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils._os import safe_join
from django.views.decorators.http import require_safe
from django.views.static import serve

from pikku_storage.conf import settings
from pikku_storage.crypto import content
from pikku_storage.deployments import checks  # noqa: F401 - who signs is told by `manage.py check` of weak secrets
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import SignedUrlError

logger = logging.getLogger(__name__)

ACTIVE = frozenset({"text/html", "application/xhtml+xml", "image/svg+xml", "text/xml", "application/xml"})
"""Kinds of files in which a script could run, with the rights of the site that serves them."""


def signed_url(url: str, lifetime: Duration = "15min", *, not_before: int | None = None) -> str:
    """The address, signed with `JWT_SECRETS`. It expires `lifetime` from now, and does not hold before `not_before`, in
    milliseconds since 1970. Raises `ImproperlyConfigured` without a secret, and `WeakKeyMaterialError`."""
    secrets = settings.JWT_SECRETS
    if not secrets:
        raise ImproperlyConfigured("Addresses are signed with PIKKU_STORAGE['JWT_SECRETS'], which is empty.")
    now = _now()
    return content.sign(secrets, url, signed_at=now, expires_at=now + to_milliseconds(lifetime), not_before=not_before)


@login_not_required
@require_safe
def serve_signed(request: HttpRequest, key: str, root: str | Path) -> HttpResponseBase:
    """The file `key` below the folder `root`, for `path("files/<path:key>", serve_signed, {"root": …})`.

    Whatever is wrong, with the address or with the file, the answer is the same 403. Conditional requests are answered
    by the time of the file's last change; ranges are not.
    """
    try:
        expires_at = content.verify(settings.JWT_SECRETS, request.path, _single(request), now=_now())
        _check_file(Path(root), key)
        response: HttpResponseBase = serve(request, key, document_root=str(root))
    except (SignedUrlError, SuspiciousFileOperation, OSError, ValueError, Http404) as error:
        logger.info("A signed file is refused: %s", error if isinstance(error, SignedUrlError) else "no such file")
        return HttpResponse("Forbidden", status=403, content_type="text/plain", headers={"Cache-Control": "no-store"})
    response["Cache-Control"] = f"private, max-age={max(0, expires_at - _now()) // 1000}"
    response["X-Content-Type-Options"] = "nosniff"
    if response.get("Content-Type", "").partition(";")[0] in ACTIVE:
        response["Content-Security-Policy"] = "sandbox"
    return response


def _single(request: HttpRequest) -> dict[str, str]:
    """The query, unless something stands in it twice."""
    return {name: values[0] for name, values in request.GET.lists() if len(values) == 1}


def _check_file(root: Path, key: str) -> None:
    """Raise unless it is a plain file in the folder itself: no symbolic link leads to it."""
    folder = os.path.realpath(root)
    path = safe_join(folder, key)
    if path != os.path.join(folder, key) or os.path.realpath(path) != path:
        raise SuspiciousFileOperation
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise Http404


def _now() -> int:
    return time.time_ns() // 1_000_000
