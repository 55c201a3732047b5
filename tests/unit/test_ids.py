"""Identifiers."""

import hashlib
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pikku_storage.ids import INVOCATION_NAMESPACE, copied_id, derived_id, invocation_id, new_id, new_token
from tests.data.vectors import load, vectors


@pytest.mark.contract("ID-04")
@pytest.mark.parametrize("vector", vectors("invocation-id"), ids=lambda vector: ascii(vector["stepName"])[:40])
def test_an_invocation_id_is_the_one_the_typescript_packages_make(vector: dict[str, Any]) -> None:
    assert invocation_id(vector["runId"], vector["stepName"]) == vector["invocationId"]
    assert invocation_id(vector["runId"], vector["stepName"]) == vector["invocationId"]


def test_the_namespace_is_the_contracts() -> None:
    assert str(INVOCATION_NAMESPACE) == load("invocation-id")["namespace"]


@pytest.mark.contract("ID-01")
def test_version_5_ids_match_the_example_of_the_rfc() -> None:
    """RFC 9562, appendix A.4, and the same construction by hand for an id of ours."""
    assert str(uuid.uuid5(uuid.NAMESPACE_DNS, "www.example.com")) == "2ed6657d-e927-568b-95e1-2665a8aea6a2"
    digest = bytearray(hashlib.sha1(INVOCATION_NAMESPACE.bytes + b"run:step", usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    assert invocation_id("run", "step") == str(uuid.UUID(bytes=bytes(digest)))


@pytest.mark.contract("ID-02")
def test_derived_ids_are_deterministic_with_version_and_variant_bits_set() -> None:
    for made in (invocation_id("run", "step"), derived_id("step", "1")):
        parsed = uuid.UUID(made)
        assert parsed.version == 5
        assert parsed.variant == uuid.RFC_4122
    assert derived_id("step", "1") == derived_id("step", "1")


@pytest.mark.contract("ID-03", "ID-05")
def test_different_steps_of_a_run_have_different_invocation_ids() -> None:
    assert len({invocation_id("run", name) for name in ("a", "a#1", "a[0]", "a:onError", "b")}) == 5


@pytest.mark.contract("ID-06")
def test_the_same_step_in_different_runs_has_different_invocation_ids() -> None:
    assert invocation_id("run-1", "charge") != invocation_id("run-2", "charge")


def test_the_parts_of_a_derived_id_do_not_run_into_each_other() -> None:
    assert derived_id("ab", "c") != derived_id("a", "bc")


def test_new_ids_are_version_7_and_sort_in_the_order_they_were_made() -> None:
    made = [new_id() for _ in range(5_000)]

    assert made == sorted(made)
    assert len(set(made)) == len(made)
    for text in (made[0], made[-1]):
        assert uuid.UUID(text).version == 7
        assert uuid.UUID(text).variant == uuid.RFC_4122
        assert text == text.lower()


def test_new_ids_of_several_threads_are_unique() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [text for batch in pool.map(lambda _: [new_id() for _ in range(500)], range(8)) for text in batch]

    assert len(set(made)) == 4_000


def test_copies_sort_as_their_originals_and_before_what_is_new() -> None:
    originals = [new_id() for _ in range(50)]
    copies = [copied_id(original, "run", str(number)) for number, original in enumerate(originals)]

    assert copies == sorted(copies)
    assert max(copies) < new_id()
    assert copies[0] == copied_id(originals[0], "run", "0")
    assert copies[0] != copied_id(originals[0], "other run", "0")
    assert uuid.UUID(copies[0]).version == 7
    assert not set(copies) & set(originals)


def test_tokens_are_unique_and_fit_their_column() -> None:
    made = {new_token() for _ in range(1_000)}

    assert len(made) == 1_000
    assert {len(token) for token in made} == {32}
