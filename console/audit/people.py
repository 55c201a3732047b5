"""Who did something: a person, the actor of a scenario, a caller whom only the wire names, or the system (contract
console.md §7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from console.owners import users_of
from pikku_storage.audit.models import AuditEntry


@dataclass(frozen=True, slots=True)
class Person:
    """A user as one reads them."""

    name: str
    is_scenario_actor: bool = False


def people_of(user_ids: Iterable[str | None]) -> dict[str, Person]:
    """By id, those who are users of this project. One query, none without ids."""
    return {str(user.pk): _person(user) for user in users_of(user_ids)}


def _person(user: Any) -> Person:
    full_name = getattr(user, "get_full_name", str)()
    email = getattr(user, "email", None)
    # A user model of a project may mark those that stand for the actors of scenarios.
    return Person(full_name or user.get_username() or email or str(user.pk), getattr(user, "actor", False) is True)


def who_did(entry: AuditEntry, people: dict[str, Person]) -> SafeString:
    """The name, or the id of somebody who is no user here; without one what the wire says; without that the system."""
    if entry.user_id:
        person = people.get(entry.user_id, Person(entry.user_id))
        if person.is_scenario_actor:
            mark = gettext("scenario actor")
            return format_html('{} <span class="pk-tag">{}</span>', person.name, mark)
        return format_html("{}", person.name)
    if entry.pikku_user_id:
        return format_html('{} <span class="pk-tag">{}</span>', entry.pikku_user_id, gettext("named by the wire"))
    return format_html('<span class="pk-quiet">{}</span>', gettext("system"))
