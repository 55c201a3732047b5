"""Scopes as Django permissions."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.backends import BaseBackend

from pikku_storage.access.held import held_scopes
from pikku_storage.access.scopes import has_scopes

PREFIX = "pikku."


class ScopeBackend(BaseBackend):
    """Answers `user.has_perm("pikku.shop:orders:read")` by the scope rules: who holds `shop` may.

    Permissions without the prefix are left to other backends, and so is signing in. Objects have no scopes of their
    own: with one the answer is `False`, as `ModelBackend` has it.
    """

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        """Whether the user holds the scope; inactive and anonymous users hold none."""
        if obj is not None or not perm.startswith(PREFIX):
            return False
        return has_scopes(held_scopes(user_obj), [perm.removeprefix(PREFIX)])

    async def ahas_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        """Async twin of `has_perm`."""
        return await sync_to_async(self.has_perm)(user_obj, perm, obj)

    def get_user_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        """The scopes that the user holds, with the prefix; what they imply is not spelled out."""
        return set() if obj is not None else {f"{PREFIX}{scope}" for scope in held_scopes(user_obj)}

    async def aget_user_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        """Async twin of `get_user_permissions`."""
        return await sync_to_async(self.get_user_permissions)(user_obj, obj)
