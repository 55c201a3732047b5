"""Who may see what. One policy answers for every list, page and endpoint of the console."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_permission_codename
from django.db.models.options import Options
from django.http import HttpRequest


def may_view(request: HttpRequest, opts: Options[Any]) -> bool:
    """Whether the caller may see that model's rows: superusers, and staff with its view or change permission."""
    return may(request, "view", opts) or may(request, "change", opts)


def may(request: HttpRequest, action: str, opts: Options[Any]) -> bool:
    """Whether the caller may `add`, `change`, `delete` or `view` that model's rows: superusers, and staff with that
    permission. To operate on runs is to change them."""
    user = request.user
    if not (user.is_active and user.is_staff):
        return False
    return user.has_perm(f"{opts.app_label}.{get_permission_codename(action, opts)}")
