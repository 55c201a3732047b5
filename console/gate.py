"""Who may see what. One policy answers for every list, page and endpoint of the console."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_permission_codename
from django.db.models.options import Options
from django.http import HttpRequest


def may_view(request: HttpRequest, opts: Options[Any]) -> bool:
    """Whether the caller may see that model's rows: superusers, and staff with its view or change permission."""
    return _has_any(request, opts, "view", "change")


def may_change(request: HttpRequest, opts: Options[Any]) -> bool:
    """Whether the caller may operate on them: superusers, and staff with its change permission."""
    return _has_any(request, opts, "change")


def _has_any(request: HttpRequest, opts: Options[Any], *actions: str) -> bool:
    user = request.user
    if not (user.is_active and user.is_staff):
        return False
    names = (f"{opts.app_label}.{get_permission_codename(action, opts)}" for action in actions)
    return any(user.has_perm(name) for name in names)
