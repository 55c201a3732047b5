"""How owners of threads read: a user's name in place of an id, with the partition if there is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.utils.translation import gettext

from console.owners import owner_names
from console.parts import Fact

_SEPARATOR = ":"
_PARTITION = " · %s"


def resource_names(resource_ids: Iterable[str | None]) -> dict[str, str]:
    """Resource id → how it reads, for all of them. One query."""
    ids = {resource_id for resource_id in resource_ids if resource_id}
    names = owner_names({part for resource_id in ids for part in (resource_id, resource_id.split(_SEPARATOR)[0])})
    return {resource_id: _label(resource_id, names) for resource_id in ids}


def name_of(resource_id: str | None, names: Mapping[str, str]) -> str:
    """How an owner reads: by name, or as it is stored."""
    return names.get(resource_id or "", resource_id or "")


def owner_fact(resource_id: str | None, names: Mapping[str, str]) -> Fact:
    """The owner in a header, who leads to their page if they are a user; the id on hover."""
    stored, name = resource_id or "", name_of(resource_id, names)
    principal, separator, partition = stored.partition(_SEPARATOR)
    user_id = principal if separator and name.endswith(_PARTITION % partition) else stored
    return Fact(gettext("Owner"), name or "—", stored, "" if name == stored else user_id)


def _label(resource_id: str, names: Mapping[str, str]) -> str:
    if resource_id in names:
        return names[resource_id]
    principal, separator, partition = resource_id.partition(_SEPARATOR)
    return names[principal] + _PARTITION % partition if separator and principal in names else resource_id
