"""Signed queue identities: those of the TypeScript packages, and whatever was changed is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikku_storage.crypto import keymaterial
from pikku_storage.crypto.queue_identity import INFO, SECRET, sign, verify
from pikku_storage.crypto.text import from_base64url, to_base64url
from pikku_storage.exceptions import WeakKeyMaterialError
from tests.data.vectors import load, vectors

KEY = "queue-identity-secret-0123456789-abcdef"
DATA = {"to": "a@b.c", "n": [1, 2.5, None]}


def name_of(vector: dict[str, Any]) -> str:
    return str(vector["name"])


@pytest.mark.contract("QI-03")
@pytest.mark.parametrize("vector", vectors("queue-identity"), ids=name_of)
def test_tokens_are_those_of_the_typescript_packages(vector: dict[str, Any]) -> None:
    data = json.loads(vector["dataJson"])
    token = sign(vector["secret"], vector["pikkuUserId"], vector["queueName"], data, vector["jobId"])
    assert token == vector["token"]
    assert verify(vector["secret"], token, vector["queueName"], data, vector["jobId"]) == vector["verified"]


@pytest.mark.contract("QI-01", "QI-04", "QI-05", "QI-06", "QI-07")
@pytest.mark.parametrize("case", load("queue-identity")["verify"], ids=name_of)
def test_tokens_are_verified_as_there(case: dict[str, Any]) -> None:
    arguments = (case["secret"], case["token"], case["queueName"], json.loads(case["dataJson"]), case["jobId"])
    if case["result"]["ok"]:
        assert verify(*arguments) == case["result"]["value"]
        return
    with pytest.raises(WeakKeyMaterialError) as caught:
        verify(*arguments)
    assert str(caught.value) == case["result"]["errorMessage"]


@pytest.mark.contract("QI-11")
def test_a_short_secret_signs_nothing() -> None:
    with pytest.raises(WeakKeyMaterialError, match=f"{SECRET} must be at least 32"):
        sign("x" * 31, "u", "q", None)
    assert verify("x" * 32, sign("x" * 32, "u", "q", None), "q", None) == "u"


@pytest.mark.contract("QI-10")
@pytest.mark.parametrize("info", ["pikku:remote-session", INFO + " "])
def test_a_signature_for_another_use_is_refused(info: str) -> None:
    head, claim, _ = sign(KEY, "u", "q", DATA).split(".")
    other = keymaterial.sign(SECRET, KEY, info, f"{head}.{claim}.null")
    assert verify(KEY, f"{head}.{claim}.{other}", "q", None) is None


@pytest.mark.parametrize(
    "claim", ["[]", "7", '{"q":"q"}', '{"u":7,"q":"q"}', '{"u":"u","q":"q","j":null}', "{", '{"u":"u"}', "[" * 100_000]
)
def test_a_signed_claim_that_says_nothing_is_refused(claim: str) -> None:
    text = to_base64url(claim.encode())
    token = f"pq1.{text}.{keymaterial.sign(SECRET, KEY, INFO, f'pq1.{text}.null')}"
    assert verify(KEY, token, "q", None) is None


@pytest.mark.parametrize("token", [None, 7, ["pq1"], "", "..", "pq1..", "u", "pq1.é.é"], ids=repr)
def test_what_is_no_token_is_refused(token: Any) -> None:
    assert verify(KEY, token, "q", None) is None


def test_data_that_cannot_be_signed_is_refused() -> None:
    assert verify(KEY, sign(KEY, "u", "q", None), "q", {1}) is None
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    assert verify(KEY, sign(KEY, "u", "q", None), "q", deep) is None


texts = st.text(min_size=1)


@given(user=texts, queue=texts, job=st.none() | texts, data=st.dictionaries(st.text(), st.integers() | st.text()))
def test_whoever_signed_is_told_and_for_that_message_only(user: str, queue: str, job: str | None, data: Any) -> None:
    token = sign(KEY, user, queue, data, job)
    assert verify(KEY, token, queue, dict(reversed(data.items())), job) == user
    assert verify(KEY, token, queue + "x", data, job) is None
    assert verify(KEY, token, queue, {**data, "": "more"}, job) is None or data.get("") == "more"
    assert verify(KEY, token, queue, data, "another job") == (user if job in {None, "another job"} else None)


@pytest.mark.contract("QI-02")
@given(part=st.sampled_from([1, 2]), bit=st.integers(0, 8 * 32 - 1))
def test_a_flipped_bit_is_refused(part: int, bit: int) -> None:
    parts = sign(KEY, "user-1", "emails", DATA, "job-9").split(".")
    changed = bytearray(from_base64url(parts[part]))
    changed[bit // 8] ^= 1 << bit % 8
    parts[part] = to_base64url(bytes(changed))
    assert verify(KEY, ".".join(parts), "emails", DATA, "job-9") is None
