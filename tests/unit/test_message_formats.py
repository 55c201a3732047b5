"""Messages of other formats become ours and come back as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from pikku_storage.agents import inputs
from pikku_storage.agents.adapters.anthropic import from_anthropic, to_anthropic
from pikku_storage.agents.adapters.openai import from_openai, to_openai
from pikku_storage.agents.adapters.pydantic_ai import from_pydantic_ai, to_pydantic_ai
from pikku_storage.agents.records import Message, ToolResult
from pikku_storage.agents.statuses import TOOL
from pikku_storage.exceptions import AgentInputError

# -- what is stored, without a database --------------------------------------------------------------------------------


def as_jsonb(value: Any) -> Any:
    """What jsonb makes of an object: it orders the keys its own way."""
    return dict(sorted(value.items(), key=lambda each: (len(each[0]), each[0]))) if isinstance(value, dict) else value


def stored(messages: list[Message]) -> list[Message]:
    """The messages as they are read: checked, and with the results after the message with their calls."""
    checked = inputs.messages(messages)
    results = {result.id: result for message in checked for result in message.tool_results}
    found = []
    for message in checked:
        if message.role == TOOL:
            continue
        calls = tuple(type(call)(id=call.id, name=call.name, args=as_jsonb(call.args)) for call in message.tool_calls)
        # As JSON text, which is what the column holds.
        content = None if message.content is None else json.loads(json.dumps(message.content))
        found.append(Message(id=message.id, role=message.role, content=content, tool_calls=calls))
        told = tuple(results[call.id] for call in calls if call.id in results)
        if told:
            found.append(Message(id=f"tool-results-{message.id}", role=TOOL, tool_results=told))
    return found


# -- what models and people say ----------------------------------------------------------------------------------------

TEXT = st.text("aé🦀\"'\\\n\u2028\x01{}: ", max_size=12)
NAME = st.text("abcdefgh_-", min_size=1, max_size=8)
SCALAR = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
OBJECT = st.dictionaries(TEXT, SCALAR | st.lists(SCALAR, max_size=2), max_size=3)
ARGUMENTS = (
    OBJECT.map(json.dumps)
    | OBJECT.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    | st.sampled_from(
        ['{"a": NaN}', '{"a":-0.0}', '{"a":1e5}', '{"a":1,"a":2}', "[1]", '"x"', '{"a":"\\u0000"}', "{'a'", ""]
    )
    | TEXT
)
MARKS = st.sampled_from(['{"type": "openai", "message": ', '{"type": "anthropic", "message": {}}'])
RESULT = TEXT | MARKS | OBJECT.map(json.dumps)
# A part that looks as if it were ours.
FORGED = st.sampled_from([{"type": each, "message": {"role": "user"}} for each in ("openai", "anthropic")])
PARTS = st.lists(TEXT.map(lambda text: {"type": "text", "text": text}) | FORGED | OBJECT, max_size=3)
CONTENT = TEXT | PARTS


@st.composite
def openai_histories(draw: Any) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 4))):
        role = draw(st.sampled_from(["system", "developer", "user", "assistant"]))
        message: dict[str, Any] = {"role": role, "content": draw(CONTENT | st.none())}
        message |= draw(st.fixed_dictionaries({}, optional={"name": NAME, "refusal": st.none() | TEXT}))
        history.append(message)
        # The ids are unique in a message, and no further.
        ids = draw(st.lists(NAME, unique=True, max_size=3)) if role == "assistant" else []
        if ids:
            message["tool_calls"] = [draw(openai_calls(each)) for each in ids]
        for each in ids[: draw(st.integers(0, 3))]:
            extras = draw(st.fixed_dictionaries({}, optional={"name": NAME}))
            history.append({"role": "tool", "tool_call_id": each, "content": draw(RESULT | PARTS), **extras})
    return history


@st.composite
def openai_calls(draw: Any, call_id: str) -> dict[str, Any]:
    if draw(st.booleans()):
        return {"id": call_id, "type": "function", "function": {"name": draw(NAME), "arguments": draw(ARGUMENTS)}}
    return {"id": call_id, "type": "custom", "custom": {"name": draw(NAME), "input": draw(TEXT)}}


@given(openai_histories())
def test_openai_round_trip(history: list[dict[str, Any]]) -> None:
    assert to_openai(stored(from_openai(history))) == history


@st.composite
def anthropic_histories(draw: Any) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 4))):
        history.append({"role": "user", "content": draw(CONTENT)})
        ids = draw(st.lists(NAME, unique=True, max_size=3))
        calls = [{"type": "tool_use", "id": each, "name": draw(NAME), "input": draw(OBJECT)} for each in ids]
        blocks = [{"type": "thinking", "thinking": draw(TEXT), "signature": "s"}, *draw(PARTS)]
        history.append(
            {"role": "assistant", "content": draw(st.permutations([*blocks, *calls]) | st.just([*blocks, *calls]))}
        )
        if ids:
            answered = draw(st.permutations(ids) | st.just(ids))[: draw(st.integers(0, 3))]
            results = [draw(anthropic_results(each)) for each in answered]
            history.append({"role": "user", "content": [*results, *draw(PARTS)]})
    return history


@st.composite
def anthropic_results(draw: Any, call_id: str) -> dict[str, Any]:
    extras = st.fixed_dictionaries({}, optional={"content": RESULT | PARTS, "is_error": st.booleans()})
    return {"type": "tool_result", "tool_use_id": call_id, **draw(extras)}


@given(anthropic_histories())
@settings(max_examples=50)
def test_anthropic_round_trip(history: list[dict[str, Any]]) -> None:
    back = to_anthropic(stored(from_anthropic(history)))
    assert back == history
    # The order of keys counts for the provider's cache.
    assert json.dumps([each["content"] for each in back if each["role"] == "assistant"]) == json.dumps(
        [each["content"] for each in history if each["role"] == "assistant"]
    )


# -- what is seen of them ----------------------------------------------------------------------------------------------


def test_what_fits_our_columns_is_kept_there_and_nowhere_else() -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "look_up", "arguments": '{"order":"A1","year":2026}'},
    }
    history = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "shipped"},
    ]
    asked, called, told = from_openai(history)
    assert (asked.role, asked.content) == ("user", "Where is it?")
    assert (called.content, called.tool_calls[0].args) == (None, {"order": "A1", "year": 2026})
    assert called.tool_calls[0].id == f"{called.id}:call_1"
    assert told.tool_results == (ToolResult(id=called.tool_calls[0].id, name="look_up", result="shipped"),)


def test_several_results_and_a_text_in_one_message_of_the_user() -> None:
    calls = [{"type": "tool_use", "id": each, "name": "look", "input": {"at": each}} for each in ("t1", "t2")]
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "yes"}]},
    ]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    history = [
        {"role": "user", "content": [image, {"type": "text", "text": "Look"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I will"}, *calls]},
        {"role": "user", "content": [*results, {"type": "text", "text": "And hurry"}]},
    ]
    ours = from_anthropic(history)
    assert [call.args for call in ours[1].tool_calls] == [{"at": "t1"}, {"at": "t2"}]
    assert to_anthropic(stored(ours)) == history
    # Of the last message alone, what it answers is not there; nor is it left in.
    assert to_anthropic(stored(ours)[-1:]) == [{"role": "user", "content": [{"type": "text", "text": "And hurry"}]}]


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (from_openai, {"role": "tool", "tool_call_id": "nobody-asked", "content": "x"}),
        (from_openai, {"role": "tool", "content": "x"}),
        (from_openai, {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]}),
        (from_openai, {"content": "x"}),
        (from_openai, "hello"),
        (from_anthropic, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "nobody-asked"}]}),
        (from_anthropic, {"role": "assistant", "content": [{"type": "tool_use", "name": "look", "input": {}}]}),
    ],
)
def test_what_is_no_message_is_refused(convert: Any, message: Any) -> None:
    with pytest.raises(AgentInputError):
        convert([message])


def test_objects_of_the_providers_libraries() -> None:
    class Response:
        def model_dump(self, **options: Any) -> dict[str, Any]:
            assert options == {"mode": "json", "exclude_unset": True}
            return {"type": "message", "id": "msg_1", "role": "assistant", "content": [text], "usage": {}}

    class Block:
        def model_dump(self, **options: Any) -> dict[str, Any]:
            return text

    text = {"type": "text", "text": "hello"}
    said = {"role": "assistant", "content": [text]}
    assert to_anthropic(from_anthropic([Response(), {"role": "assistant", "content": [Block()]}])) == [said, said]


def test_pydantic_ai_round_trip() -> None:
    history: list[ModelMessage] = [
        ModelRequest(
            parts=[
                SystemPromptPart("Be kind"),
                UserPromptPart(["Look:", BinaryContent(b"\x00\xff", media_type="image/png")]),
                UserPromptPart("And then?"),
            ],
            instructions="Be brief",
        ),
        ModelResponse(
            parts=[
                ThinkingPart("hm", signature="s"),
                TextPart("I look"),
                ToolCallPart("look", {"b": 1, "a": -0.0}, tool_call_id="same"),
                ToolCallPart("find", '{"x": "not JSON', tool_call_id="other"),
            ],
            model_name="m",
        ),
        ModelRequest(
            parts=[
                ToolReturnPart("look", {"found": [1, None]}, tool_call_id="same"),
                ToolReturnPart("find", "no JSON", tool_call_id="other"),
            ]
        ),
        ModelResponse(parts=[ToolCallPart("look", None, tool_call_id="same")]),
    ]
    ours = from_pydantic_ai(history)
    # Times of parts are made when they are; all else that a library makes anew would differ.
    assert to_pydantic_ai(stored(ours)) == ModelMessagesTypeAdapter.validate_json(
        ModelMessagesTypeAdapter.dump_json(history)
    )
    seen = [message for message in stored(ours) if message.role != TOOL]
    assert [part["text"] for part in seen[0].content[:-1]] == ["Be kind", "And then?"]
    assert [call.args for call in seen[1].tool_calls] == [{"a": -0.0, "b": 1}, '{"x": "not JSON']
    (results,) = [message.tool_results for message in stored(ours) if message.role == TOOL]
    assert [result.result for result in results] == ['{"found": [1, null]}', "no JSON"]
    assert len({call.id for message in seen for call in message.tool_calls}) == 3


def test_only_its_own_messages_are_pydantic_ais() -> None:
    with pytest.raises(AgentInputError, match="m1 was not written by"):
        to_pydantic_ai([Message(id="m1", role="user", content="hello")])
