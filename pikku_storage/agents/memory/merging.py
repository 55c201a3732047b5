"""How changes go into a working memory."""

from __future__ import annotations

from collections.abc import Mapping

from pikku_storage.json import Json

DANGEROUS = frozenset({"__proto__", "constructor", "prototype"})
"""Harmless in Python, and not in the programs in JavaScript that may read the same memory."""


def merge(memory: Mapping[str, Json], changes: Mapping[str, Json]) -> dict[str, Json]:
    """The memory with these changes (contract AM-02); neither of the two is changed.

    Objects are merged, key by key. `None` deletes a key. Everything else, arrays too, takes the place of what there
    was. Keys in `DANGEROUS` are ignored, however deep.
    """
    merged = dict(memory)
    for key, value in changes.items():
        if key in DANGEROUS:
            continue
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            before = merged.get(key)
            merged[key] = merge(before if isinstance(before, Mapping) else {}, value)
        else:
            merged[key] = _clean(value)
    return merged


def _clean(value: Json) -> Json:
    """What stands in an array keeps its nulls: there they are values."""
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _clean(item) for key, item in value.items() if key not in DANGEROUS}
    return value
