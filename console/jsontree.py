"""JSON as a tree that folds: nested `details`, so that it works by keyboard and without a script.

However large a value is, the page shows a bounded part of it; the whole is one click away, as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext

from pikku_storage.json import Json

MOST_NODES = 200
MOST_TEXT = 8_000
"""Characters of all texts of a tree together: what is pretty costs several times its size in markup."""
MOST_MEMBERS = 100
LONGEST_TEXT = 600
DEEPEST = 24
OPEN_DEPTH = 3
OPEN_MEMBERS = 12


@dataclass(slots=True)
class _Budget:
    nodes: int = MOST_NODES
    text: int = MOST_TEXT

    def take(self, member: Json) -> bool:
        """Whether there is room for one more."""
        self.nodes -= 1
        self.text -= min(len(member), LONGEST_TEXT) if isinstance(member, str) else 0
        return self.nodes >= 0 and self.text >= 0


def as_text(value: Json) -> str:
    """The whole value, indented."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def size_of(value: Json) -> int:
    """Bytes of the value as compact UTF-8 JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def render_tree(value: Json) -> SafeString:
    """The value as HTML, escaped throughout and cut to what a page can bear."""
    return format_html('<div class="pk-json">{}</div>', _node(value, SafeString(""), 0, _Budget()))


def _node(value: Json, label: SafeString, depth: int, budget: _Budget) -> SafeString:
    if isinstance(value, dict):
        members: Iterable[tuple[SafeString, Json]] = ((_key(key), member) for key, member in value.items())
        count = ngettext("%(n)d key", "%(n)d keys", len(value)) % {"n": len(value)}
        return _container(members, len(value), "{}", count, label, depth, budget)
    if isinstance(value, list):
        members = ((SafeString(""), member) for member in value)
        count = ngettext("%(n)d item", "%(n)d items", len(value)) % {"n": len(value)}
        return _container(members, len(value), "[]", count, label, depth, budget)
    return format_html("{}{}", label, _scalar(value))


def _container(
    members: Iterable[tuple[SafeString, Json]],
    length: int,
    brackets: str,
    count: str,
    label: SafeString,
    depth: int,
    budget: _Budget,
) -> SafeString:
    if not length:
        return format_html("{}{}", label, brackets)
    lines: list[tuple[SafeString]] = []
    for member_label, member in members:
        if len(lines) >= MOST_MEMBERS or depth >= DEEPEST or not budget.take(member):
            break
        lines.append((_node(member, member_label, depth + 1, budget),))
    left_out = length - len(lines)
    if left_out:
        more = ngettext("%(n)d more is not shown", "%(n)d more are not shown", left_out) % {"n": left_out}
        lines.append((format_html('<span class="pk-json-more">… {}</span>', more),))
    is_open = depth == 0 or (depth < OPEN_DEPTH and length <= OPEN_MEMBERS)
    return format_html(
        '<details{}><summary>{}{} <span class="pk-json-count">{}</span></summary><ul>{}</ul><span>{}</span></details>',
        SafeString(" open") if is_open else "",
        label,
        brackets[0],
        count,
        format_html_join("", "<li>{}</li>", lines),
        brackets[1],
    )


def _key(name: str) -> SafeString:
    return format_html('<span class="pk-json-key">{}</span>: ', json.dumps(_cut(name), ensure_ascii=False))


def _scalar(value: Json) -> SafeString:
    if isinstance(value, str):
        text = format_html('<span class="pk-json-text">{}</span>', json.dumps(_cut(value), ensure_ascii=False))
        if len(value) <= LONGEST_TEXT:
            return text
        more = gettext("%(n)d characters in all") % {"n": len(value)}
        return format_html('{} <span class="pk-json-more">… {}</span>', text, more)
    kind = "pk-json-word" if value is None or isinstance(value, bool) else "pk-json-number"
    return format_html('<span class="{}">{}</span>', kind, json.dumps(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT]
