"""A local stand-in for a language model: a few rules that read the conversation and answer in the same format.

It says the same to the same conversation, every time, and knows nothing of the shop. A real one takes its place by
answering `complete` with the message of a chat completion:

    response = await AsyncOpenAI().chat.completions.create(model="…", messages=[…, *messages], tools=[…])
    return response.choices[0].message
"""

from __future__ import annotations

import json
import re
from typing import Any

NAME = "stand-in"
_ORDER = re.compile(r"\b[A-Z]\d+\b")
_REFUND = re.compile(r"\b(refund|money back)\b", re.IGNORECASE)

Message = dict[str, Any]


async def complete(messages: list[Message]) -> Message:
    """What the assistant says next: a text, or the call of a tool."""
    last = messages[-1]
    if last["role"] == "user":
        return _listen(last["content"], messages)
    (call,) = messages[-2]["tool_calls"]
    answer = {"look_up_order": _after_look_up, "refund_order": _after_refund}[call["function"]["name"]]
    return answer(json.loads(last["content"]), messages)


def _listen(text: str, messages: list[Message]) -> Message:
    order = _ORDER.search(text)
    if order is None:
        return _say("I am glad to help. Which order is it about?")
    return _call("look_up_order", messages, order_id=order[0])


def _after_look_up(order: dict[str, Any], messages: list[Message]) -> Message:
    if "error" in order:
        return _say(f"I am sorry, {order['error']}.")
    question = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    if _REFUND.search(question):
        return _call("refund_order", messages, order_id=order["order_id"])
    tracking = f", its parcel is {order['tracking']}" if order["tracking"] else ""
    return _say(f"Order {order['order_id']} is {order['status']}{tracking}.")


def _after_refund(result: dict[str, Any], messages: list[Message]) -> Message:
    return _say(
        {
            "started": "A colleague approved it: your money is on its way.",
            "denied": "I am sorry, a colleague looked at it and cannot give a refund.",
            "expired": "I am sorry, nobody could look at it in time. Please ask again.",
        }.get(result.get("refund", ""), f"I cannot ask for a refund: {result.get('error')}.")
    )


def _say(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _call(name: str, messages: list[Message], **arguments: str) -> Message:
    # Unique in the conversation, and nowhere else, as with some providers.
    count = sum(len(message.get("tool_calls", ())) for message in messages)
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{count + 1}", "type": "function", "function": function}],
    }
