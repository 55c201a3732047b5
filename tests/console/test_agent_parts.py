"""What a message says, in the formats of providers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console.agents.parts import Part, parts_of, parts_of_beginning
from console.formatting import number


def text(words: str, **more: str) -> Part:
    return Part(kind="text", text=words, **more)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, []),
        ("", []),
        ([], []),
        ("hello", [text("hello")]),
        (["hello", {"type": "text", "text": "you"}], [text("hello"), text("you")]),
        ([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}], [text("a"), text("b")]),
        ([{"type": "refusal", "refusal": "no"}], [text("no", label="refusal")]),
        ([{"type": "thinking", "thinking": "hm", "signature": "x"}], [Part(kind="reasoning", text="hm")]),
        ([{"type": "reasoning", "text": "hm"}], [Part(kind="reasoning", text="hm")]),
        (
            [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"text": "b"}]}],
            [Part(kind="reasoning", text="a\n\nb")],
        ),
        (
            [{"type": "redacted_thinking", "data": "…"}],
            [Part(kind="reasoning", label="The provider keeps it to itself.")],
        ),
        (
            [{"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}],
            [Part(kind="file", label="image_url", text="https://x.example/a.png", url="https://x.example/a.png")],
        ),
        (
            [{"type": "image", "source": {"type": "url", "url": "http://x.example/b", "media_type": "image/png"}}],
            [Part(kind="file", label="image/png", text="http://x.example/b", url="http://x.example/b")],
        ),
        (
            [{"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "A" * 8192}}],
            [Part(kind="file", label="image/jpeg", text="6 kB")],
        ),
        (
            [{"type": "image", "image": "data:image/gif;base64," + "A" * 4096}],
            [Part(kind="file", label="image/gif", text="3 kB")],
        ),
        (
            [{"type": "file", "file": {"filename": "bill.pdf", "file_id": "file-1"}, "mediaType": "application/pdf"}],
            [Part(kind="file", label="bill.pdf · application/pdf", text="file-1")],
        ),
        # No address of another kind becomes a link.
        (
            [{"type": "image", "image": "javascript:alert(1)"}],
            [Part(kind="file", label="image", text="javascript:alert(1)")],
        ),
        ([{"type": "text"}], [Part(kind="json", text='{\n  "type": "text"\n}', label="text")]),
        (
            [{"type": "weather", "is": 1}],
            [Part(kind="json", text='{\n  "type": "weather",\n  "is": 1\n}', label="weather")],
        ),
        ([7], [Part(kind="json", text="7")]),
        ({"any": "thing"}, [Part(kind="json", text='{\n  "any": "thing"\n}')]),
        (
            [{"type": "openai", "message": {"role": "x"}}],
            [Part(kind="json", text='{\n  "role": "x"\n}', label="as in the format openai")],
        ),
    ],
)
def test_parts(content: Any, expected: list[Part]) -> None:
    assert parts_of(content) == expected


LONG = 'a "b" \\ \n ☕ é ' * 40


@pytest.mark.parametrize("length", [*range(1, 60), 200, 300])
def test_the_beginning_of_a_text(length: int) -> None:
    (part,) = parts_of_beginning(json.dumps(LONG)[:length])
    assert part.kind == "text"
    # An escape that is cut is left out.
    assert LONG.startswith(part.text)
    assert len(part.text) * 6 >= length - 13


@pytest.mark.parametrize("length", range(40, 200, 7))
def test_the_beginning_of_parts(length: int) -> None:
    content = [{"type": "text", "text": "short"}, {"type": "text", "text": LONG}]
    first, *rest = parts_of_beginning(json.dumps(content, ensure_ascii=False)[:length])
    assert first == text("short")
    assert all(part.kind == "json" or LONG.startswith(part.text) for part in rest)
    assert length < 64 or rest[-1].kind == "text"


def test_the_beginning_of_an_image() -> None:
    content = [{"type": "image", "source": {"media_type": "image/png", "data": "A" * 9000}}]
    assert parts_of_beginning(json.dumps(content)[:4000]) == [Part(kind="file", label="image/png", text="…")]
    assert parts_of_beginning('{"any": "th') == [Part(kind="json", text='{"any": "th')]


def test_numbers() -> None:
    assert [number(each) for each in (0, 999, 1234567)] == ["0", "999", "1,234,567"]
