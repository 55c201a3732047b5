"""JSON is shown as a tree that is escaped, folds, and is never larger than a page can bear."""

from __future__ import annotations

import json

from console.jsontree import LONGEST_TEXT, MOST_MEMBERS, as_text, render_tree, size_of


def test_every_kind_of_value() -> None:
    html = render_tree({"text": "a", "number": 1.5, "yes": True, "nothing": None, "empty": [], "none": {}})
    for part in ("&quot;text&quot;", "&quot;a&quot;", ">1.5<", ">true<", ">null<", "[]", "{}"):
        assert part in html


def test_html_is_text() -> None:
    html = render_tree({"<script>alert(1)</script>": "<img src=x onerror=alert(1)>", "amp": "&lt;"})
    assert "<script" not in html
    assert "<img" not in html
    assert "&amp;lt;" in html


def test_long_texts_are_cut_and_say_so() -> None:
    html = render_tree("x" * 100_000)
    assert len(html) < 2 * LONGEST_TEXT
    assert "100000 characters in all" in html


def test_long_lists_are_cut_and_say_so() -> None:
    html = render_tree(list(range(5_000)))
    assert html.count("<li>") == MOST_MEMBERS + 1
    assert "4900 more are not shown" in html


def test_the_whole_tree_is_bounded() -> None:
    assert len(render_tree([[[[0] * 50] * 50] * 50])) < 100_000


def test_deep_nesting_ends() -> None:
    value: object = 1
    for _ in range(300):
        value = [value]
    assert "more is not shown" in render_tree(value)


def test_size_and_text_are_of_the_whole() -> None:
    value = {"é": [1, 2]}
    assert size_of(value) == len('{"é":[1,2]}'.encode())
    assert json.loads(as_text(value)) == value
