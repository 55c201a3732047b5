"""What a node is given: plain JSON with references and templates in it (contract services.md §1.10).

A reference is `{"$ref": name, "path": "a.b.0"}` and a template `{"$template": {"parts": […], "expressions": […]}}`, as
they are stored. The functions here write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any, Final

from pikku_storage.exceptions import PikkuError
from pikku_storage.json import Json

TRIGGER: Final = "trigger"
ITEM: Final = "$item"
UNKNOWN: Final = "unknown"
RESERVED: Final = frozenset({TRIGGER, ITEM, UNKNOWN})
"""Names that a reference may use beside those of nodes."""

_REQUIRED: Final = object()
_parse = Formatter().parse


class UnresolvedError(PikkuError):
    """A reference found nothing, and has no default."""


def ref(node: str, path: str | None = None, *, default: Any = _REQUIRED) -> dict[str, Any]:
    """The result of a node, or what is at a dotted `path` in it: `ref("charge", "receipt.id")`, `ref("pack", "0.sku")`.

    Of a node that was visited several times it is the latest result, and of one with `for_each` the list of all
    results. The node waits until there is one. With a `default` it does not wait: that is taken where there is nothing.
    """
    reference: dict[str, Any] = {"$ref": node}
    if path:
        reference["path"] = path
    if default is not _REQUIRED:
        reference["default"] = default
    return reference


def trigger(path: str | None = None, *, default: Any = _REQUIRED) -> dict[str, Any]:
    """The run's input, or what is at a dotted `path` in it. Without a `default` it must be there when a run starts."""
    return ref(TRIGGER, path, default=default)


def item(path: str | None = None, *, default: Any = _REQUIRED) -> dict[str, Any]:
    """The element that this step of a node with `for_each` is about, or what is at a dotted `path` in it."""
    return ref(ITEM, path, default=default)


def template(text: str, *references: Mapping[str, Any]) -> dict[str, Any]:
    """A text with references in it: `template("Order {0} of {1}", trigger("id"), ref("customer", "name"))`.

    `{{` and `}}` stand for braces. A null becomes nothing, a text itself, any other value its JSON.
    """
    parts, expressions = [""], []
    for literal, field, _format, _conversion in _parse(text):
        parts[-1] += literal
        if field is None:
            continue
        known = field.isdecimal() and int(field) < len(references)
        expressions.append(dict(references[int(field)]) if known else {"$ref": UNKNOWN})
        parts.append("")
    return {"$template": {"parts": parts, "expressions": expressions}}


def references_in(value: Json) -> Iterator[dict[str, Any]]:
    """All references in a value, those of its templates too."""
    if _is_reference(value):
        yield value
    elif _is_template(value):
        yield from value["$template"]["expressions"]
    elif isinstance(value, dict):
        for inner in value.values():
            yield from references_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references_in(inner)


def resolve(value: Json, scope: Mapping[str, Json]) -> Json:
    """The value with its references replaced; `scope` has the results by name. Raises `UnresolvedError` for a path that
    leads nowhere."""
    if _is_reference(value):
        return _look_up(value, scope)
    if _is_template(value):
        return _fill(value["$template"], scope)
    if isinstance(value, dict):
        return {key: resolve(inner, scope) for key, inner in value.items()}
    if isinstance(value, list):
        return [resolve(inner, scope) for inner in value]
    return value


def _is_reference(value: Json) -> bool:
    return isinstance(value, dict) and isinstance(value.get("$ref"), str)


def _is_template(value: Json) -> bool:
    return isinstance(value, dict) and isinstance(value.get("$template"), dict)


def _look_up(reference: dict[str, Any], scope: Mapping[str, Json]) -> Json:
    name, path = reference["$ref"], reference.get("path")
    if name not in scope:
        return reference.get("default")
    found = scope[name]
    for key in path.split(".") if path else ():
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif "default" in reference:
            return reference["default"]
        else:
            raise UnresolvedError(f"there is no {path!r} in what {name!r} is: {json.dumps(scope[name])[:200]}")
    return found


def _fill(parts: Mapping[str, Any], scope: Mapping[str, Json]) -> str:
    texts = [*map(_text, (_look_up(expression, scope) for expression in parts["expressions"])), ""]
    return "".join(literal + text for literal, text in zip(parts["parts"], texts, strict=True))


def _text(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
