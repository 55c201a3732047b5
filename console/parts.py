"""What several pages show: facts and payloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.utils.safestring import SafeString

from console.formatting import absolute, ago
from console.jsontree import render_tree, size_of
from pikku_storage.json import Json


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and a value of the header."""

    label: str
    value: str
    title: str = ""
    user_id: str = ""
    """Whose page it leads to, of those who are users of this project."""

    @classmethod
    def person(cls, label: str, user_id: str | None, names: Mapping[str, str]) -> Fact:
        """Somebody, by name as far as `names` has one; the id on hover."""
        known = user_id or ""
        return cls(label, names.get(known, known or "—"), known, known if known in names else "")

    @classmethod
    def since(cls, label: str, at: datetime, now: datetime) -> Fact:
        """How long ago that was; the time on hover."""
        return cls(label, ago(at, now), absolute(at))


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadView:
    """A payload as shown: a tree cut to size, the whole's size, and where the whole is."""

    title: str
    tree: SafeString
    size: int
    url: str
    changes: bool = False
    """Whether it may have been another one earlier in the run."""

    @classmethod
    def of(cls, title: str, value: Json, url: str, *, changes: bool = False) -> PayloadView:
        """The view of that value."""
        return cls(title=title, tree=render_tree(value), size=size_of(value), url=url, changes=changes)
