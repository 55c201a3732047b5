"""What sealing and signing promise beside the vectors."""

import copy
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikku_storage.crypto import aead, bound, envelope, keymaterial, passphrase
from pikku_storage.crypto.bound import Place
from pikku_storage.crypto.envelope import Envelope
from pikku_storage.crypto.hidden import HiddenBytes
from pikku_storage.crypto.text import from_base64url, to_base64url
from pikku_storage.exceptions import DecryptionError, InvalidEncryptedPayloadError, WeakKeyMaterialError
from tests.secret_keys import NEXT_PASSPHRASE, PASSPHRASE, SALT, derive_kek

BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
MATERIAL = "0123456789abcdef0123456789abcdef"
KEK, NEXT_KEK = aead.generate_key(), aead.generate_key()
PLACE = Place("secrets", "API_KEY")

VALUES: list[Any] = [
    {"user": "ada"},
    "text",
    42,
    None,
    True,
    {"a": {"b": {"c": [1, {"d": 2}]}}},
    [1, "two", None],
    "héllo ☕ 🚀 漢字",
    {},
    {"large": "x" * 100_000},
]
any_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
quick = settings(max_examples=60, deadline=None)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


def changed(text: str, change: Callable[[bytes], bytes]) -> str:
    return to_base64url(change(from_base64url(text)))


@pytest.fixture
def quick_derivation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the number of iterations does not matter."""
    monkeypatch.setattr(envelope, "ITERATIONS", 1)


# -- tokens under a passphrase -----------------------------------------------------------------------------------------


@pytest.mark.contract("CY-01", "CY-11")
@pytest.mark.parametrize("value", VALUES, ids=lambda value: json.dumps(value)[:20])
@pytest.mark.usefixtures("quick_derivation")
def test_a_token_opens_to_what_was_sealed(value: Any) -> None:
    assert passphrase.decrypt("secret", passphrase.encrypt("secret", value)) == value


@pytest.mark.contract("CY-02", "CY-03", "CY-09", "CY-10")
@pytest.mark.usefixtures("quick_derivation")
def test_each_token_has_a_salt_and_an_iv_of_its_own() -> None:
    tokens = [passphrase.encrypt("secret", "same") for _ in range(4)]
    data = [from_base64url(token) for token in tokens]

    assert all(BASE64URL.fullmatch(token) for token in tokens)
    assert len({each[:16] for each in data}) == len({each[16:28] for each in data}) == 4
    assert {len(each) for each in data} == {16 + 12 + len(b'"same"') + 16}


@pytest.mark.contract("CY-04", "CY-12")
@pytest.mark.usefixtures("quick_derivation")
def test_another_passphrase_does_not_open_a_token() -> None:
    with pytest.raises(DecryptionError):
        passphrase.decrypt("other", passphrase.encrypt("secret", "value"))


@pytest.mark.contract("CY-05", "CY-06", "CY-13", "CY-14")
@pytest.mark.parametrize("length", [0, 5, 10, 28, 44])
def test_what_is_too_short_is_no_token(length: int) -> None:
    """Not even a key is derived for it."""
    with pytest.raises(InvalidEncryptedPayloadError, match=r"^Invalid encrypted payload$"):
        passphrase.decrypt("secret", to_base64url(bytes(length)))


@pytest.mark.contract("CY-07", "CY-15", "CY-16")
@pytest.mark.usefixtures("quick_derivation")
@quick
@given(bit=st.integers(0, 10_000))
def test_a_token_with_a_flipped_bit_does_not_open(bit: int) -> None:
    token = passphrase.encrypt("secret", {"a": 1})
    with pytest.raises(DecryptionError):
        passphrase.decrypt("secret", changed(token, lambda data: flipped(data, bit)))


@pytest.mark.contract("CY-08", "CY-30", "CY-31")
def test_a_key_depends_on_passphrase_and_salt_and_is_no_bare_hash() -> None:
    from hashlib import sha256

    key = envelope.derive_kek(PASSPHRASE, SALT)
    assert key == derive_kek(PASSPHRASE, SALT)
    assert len({key, derive_kek(NEXT_PASSPHRASE, SALT), derive_kek(PASSPHRASE, "AQ"), bytes(key[:0])}) == 4
    assert key != sha256(PASSPHRASE.encode()).digest()


# -- key material ------------------------------------------------------------------------------------------------------


@pytest.mark.contract("CY-17", "CY-25", "CY-27")
@pytest.mark.parametrize("value", VALUES[:9], ids=json.dumps)
def test_key_material_seals(value: Any) -> None:
    tokens = [keymaterial.encrypt("NAME", MATERIAL, "use", value) for _ in range(2)]
    data = [from_base64url(token) for token in tokens]

    assert [keymaterial.decrypt("NAME", MATERIAL, "use", token) for token in tokens] == [value, value]
    assert all(BASE64URL.fullmatch(token) for token in tokens)
    assert data[0][:16] != data[1][:16]
    assert len(data[0]) == 16 + 12 + len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) + 16


@pytest.mark.contract("CY-18", "CY-19", "CY-20", "CY-22")
@pytest.mark.usefixtures("quick_derivation")
def test_only_the_same_material_and_info_open() -> None:
    token = keymaterial.encrypt("NAME", MATERIAL, "pikku:use", "value")
    for material, info in [(MATERIAL[::-1], "pikku:use"), (MATERIAL, "other"), (MATERIAL, "pikku:usf")]:
        with pytest.raises(DecryptionError):
            keymaterial.decrypt("NAME", material, info, token)
    with pytest.raises(DecryptionError):
        keymaterial.decrypt("NAME", MATERIAL, "pikku:use", passphrase.encrypt(MATERIAL, "value"))


@pytest.mark.contract("CY-21")
@quick
@given(bit=st.integers(0, 10_000), cut=st.integers(1, 44))
def test_key_material_opens_nothing_that_was_changed(bit: int, cut: int) -> None:
    token = keymaterial.encrypt("NAME", MATERIAL, "use", "value")
    for change in (lambda data: flipped(data, bit), lambda data: data[:-cut]):
        with pytest.raises(DecryptionError):
            keymaterial.decrypt("NAME", MATERIAL, "use", changed(token, change))


@pytest.mark.contract("CY-23", "CY-24", "CY-26")
@pytest.mark.parametrize("use", [keymaterial.encrypt, keymaterial.decrypt])
def test_31_characters_are_too_few(use: Callable[..., Any]) -> None:
    with pytest.raises(WeakKeyMaterialError, match=r"^NAME must be at least 32 characters .*, got 31\.") as caught:
        use("NAME", MATERIAL[:31], "use", "")
    assert MATERIAL[:31] not in str(caught.value)


def test_characters_are_counted_as_javascript_does() -> None:
    """An emoji is two."""
    assert keymaterial.sign("NAME", "🔑" * 16, "use", "payload")
    with pytest.raises(WeakKeyMaterialError, match="got 30"):
        keymaterial.sign("NAME", "🔑" * 15, "use", "payload")


@quick
@given(payload=st.text(), other=st.text(), bit=st.integers(0, 255))
def test_a_signature_is_of_one_text(payload: str, other: str, bit: int) -> None:
    signature = keymaterial.sign("NAME", MATERIAL, "use", payload)

    assert keymaterial.verify("NAME", MATERIAL, "use", payload, signature)
    assert keymaterial.verify("NAME", MATERIAL, "use", other, signature) == (other == payload)
    assert not keymaterial.verify("NAME", MATERIAL, "use", payload, changed(signature, lambda data: flipped(data, bit)))


@pytest.mark.parametrize("signature", ["", "?", "AAAA", "=" * 50, "☕", "\x00"])
def test_what_is_no_signature_is_none(signature: str) -> None:
    assert not keymaterial.verify("NAME", MATERIAL, "use", "payload", signature)


# -- envelopes ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("CY-28", "CY-29")
def test_data_keys_and_salts_are_unique() -> None:
    for generate, length in [(envelope.generate_dek, 43), (envelope.generate_kek_salt, 22)]:
        made = {generate() for _ in range(50)}
        assert len(made) == 50
        assert all(len(each) == length and BASE64URL.fullmatch(each) for each in made)


@pytest.mark.contract("CY-32", "CY-33", "CY-34")
def test_a_data_key_is_wrapped_and_unwrapped() -> None:
    dek = envelope.generate_dek()
    wrapped = envelope.wrap_dek(KEK, dek)

    assert envelope.unwrap_dek(KEK, wrapped) == dek
    assert (len(wrapped), len(from_base64url(wrapped))) == (98, 12 + 45 + 16)
    with pytest.raises(DecryptionError):
        envelope.unwrap_dek(NEXT_KEK, wrapped)


@pytest.mark.contract("CY-35", "CY-36")
@quick
@given(bit=st.integers(0, 73 * 8 - 1), cut=st.integers(1, 73))
def test_a_wrapped_key_that_was_changed_is_refused(bit: int, cut: int) -> None:
    wrapped = envelope.wrap_dek(KEK, envelope.generate_dek())
    for change in (lambda data: flipped(data, bit), lambda data: data[:-cut]):
        with pytest.raises(DecryptionError):
            envelope.unwrap_dek(KEK, changed(wrapped, change))


@pytest.mark.contract("CY-37", "CY-42")
@quick
@given(value=any_json)
def test_an_envelope_opens_to_what_was_sealed(value: Any) -> None:
    assert envelope.decrypt(KEK, *envelope.encrypt(KEK, value)) == value
    assert bound.decrypt(KEK, *bound.encrypt(KEK, value, PLACE, 1), PLACE, 1) == value


@pytest.mark.contract("CY-38", "CY-39")
def test_no_two_envelopes_are_alike_and_another_key_opens_none() -> None:
    one, two = envelope.encrypt(KEK, "same"), envelope.encrypt(KEK, "same")

    assert not set(one) & set(two)
    with pytest.raises(DecryptionError):
        envelope.decrypt(NEXT_KEK, *one)
    with pytest.raises(DecryptionError):
        envelope.decrypt(KEK, one.ciphertext, two.wrapped_dek)


@pytest.mark.contract("CY-40", "CY-41", "CY-43")
def test_a_rewrapped_key_opens_the_same_ciphertext() -> None:
    sealed = [envelope.encrypt(KEK, number) for number in range(50)]
    rewrapped = [envelope.rewrap(KEK, NEXT_KEK, each.wrapped_dek) for each in sealed]

    assert [
        envelope.decrypt(NEXT_KEK, each.ciphertext, key) for each, key in zip(sealed, rewrapped, strict=True)
    ] == list(range(50))
    with pytest.raises(DecryptionError):
        envelope.decrypt(KEK, sealed[0].ciphertext, rewrapped[0])


@quick
@given(part=st.sampled_from([0, 1]), bit=st.integers(0, 10_000))
def test_an_envelope_with_a_flipped_bit_does_not_open(part: int, bit: int) -> None:
    sealed = list(envelope.encrypt(KEK, {"a": "b"}))
    sealed[part] = changed(sealed[part], lambda data: flipped(data, bit))
    with pytest.raises(DecryptionError):
        envelope.decrypt(KEK, *sealed)


@pytest.mark.parametrize("dek", ["", "AAAA", 5, None], ids=str)
def test_what_was_wrapped_must_be_a_data_key(dek: Any) -> None:
    sealed = envelope.encrypt(KEK, "value")
    with pytest.raises(DecryptionError):
        envelope.decrypt(KEK, sealed.ciphertext, envelope.wrap_dek(KEK, dek))


def test_a_plaintext_that_is_no_json_is_not_quoted() -> None:
    dek = aead.generate_key()
    sealed = to_base64url(aead.seal(dek, b"hunter2, bare"))
    with pytest.raises(DecryptionError) as caught:
        envelope.decrypt(KEK, sealed, envelope.wrap_dek(KEK, to_base64url(dek)))
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None


# -- envelopes that know their place -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "version"),
    [
        (Place("credentials", "API_KEY"), 1),
        (Place("secrets", "API_KEY2"), 1),
        (Place("secrets", "API_KEY", "user-1"), 1),
        (Place("secrets", "API_KEY", ""), 1),
        (PLACE, 2),
    ],
)
def test_a_bound_envelope_opens_nowhere_else(place: Place, version: int) -> None:
    sealed = bound.encrypt(KEK, "value", PLACE, 1)

    assert bound.decrypt(KEK, *sealed, PLACE, 1) == "value"
    with pytest.raises(DecryptionError):
        bound.decrypt(KEK, *sealed, place, version)


def test_the_value_itself_is_bound_too() -> None:
    """Whoever has the key of the one place cannot have the value of the other with it."""
    sealed = bound.encrypt(KEK, "value", PLACE, 1)
    dek = aead.unseal(KEK, from_base64url(sealed.wrapped_dek[4:]), PLACE.associated("key", 1))
    elsewhere = Place("secrets", "OTHER")
    wrapped = bound.PREFIX + to_base64url(aead.seal(KEK, dek, elsewhere.associated("key", 1)))
    with pytest.raises(DecryptionError):
        bound.decrypt(KEK, sealed.ciphertext, wrapped, elsewhere, 1)


def test_one_format_does_not_become_the_other() -> None:
    sealed, plain = bound.encrypt(KEK, "value", PLACE, 1), envelope.encrypt(KEK, "value")

    with pytest.raises(DecryptionError):
        envelope.decrypt(KEK, sealed.ciphertext[4:], sealed.wrapped_dek[4:])
    with pytest.raises(DecryptionError):
        bound.decrypt(KEK, f"pk2.{plain.ciphertext}", f"pk2.{plain.wrapped_dek}", PLACE, 1)
    with pytest.raises(DecryptionError):
        bound.decrypt(KEK, *plain, PLACE, 1)
    assert [bound.is_bound(each.ciphertext) for each in (sealed, plain)] == [True, False]


def test_a_bound_envelope_is_rewrapped_for_another_version() -> None:
    sealed = bound.encrypt(KEK, "value", PLACE, 1)
    rewrapped = bound.rewrap(KEK, NEXT_KEK, sealed.wrapped_dek, PLACE, old_version=1, new_version=2)

    assert bound.decrypt(NEXT_KEK, sealed.ciphertext, rewrapped, PLACE, 2) == "value"
    with pytest.raises(DecryptionError):
        bound.rewrap(KEK, NEXT_KEK, sealed.wrapped_dek, PLACE, old_version=2, new_version=3)


@quick
@given(part=st.sampled_from([0, 1]), data=st.data())
def test_a_bound_envelope_in_which_any_character_is_another_does_not_open(part: int, data: st.DataObject) -> None:
    """Also the bits of the last character that stand for no byte."""
    sealed = list(bound.encrypt(KEK, {"a": "b"}, PLACE, 1))
    index = data.draw(st.integers(0, len(sealed[part]) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda each: each != sealed[part][index]))
    sealed[part] = sealed[part][:index] + other + sealed[part][index + 1 :]
    with pytest.raises(DecryptionError):
        bound.decrypt(KEK, sealed[0], sealed[1], PLACE, 1)


@quick
@given(version=st.integers(1, 10**6))
def test_one_text_holds_envelope_and_version(version: int) -> None:
    sealed = bound.encrypt(KEK, "value", PLACE, version)
    text = bound.pack(sealed, version)

    assert text.startswith(f"pk2.{version}.")
    assert bound.unpack(text) == (sealed, version)


@pytest.mark.parametrize("text", ["", "plain", "pk2.1.a", "pk2.x.a.b", "pk3.1.a.b", "pk2.1.a.b.c", "pk2.².a.b"])
def test_other_texts_are_no_envelopes(text: str) -> None:
    with pytest.raises(InvalidEncryptedPayloadError):
        bound.unpack(text)


# -- what can be seen --------------------------------------------------------------------------------------------------


def test_keys_and_plaintexts_show_nothing() -> None:
    hidden = HiddenBytes(b"hunter2")

    assert {repr(hidden), str(hidden), f"{hidden}", f"{hidden!r}"} == {"<hidden>"}
    assert isinstance(derive_kek(PASSPHRASE, SALT), HiddenBytes)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            copied(hidden)


def test_an_envelope_is_a_pair() -> None:
    ciphertext, wrapped_dek = sealed = envelope.encrypt(KEK, "value")
    assert sealed == Envelope(ciphertext=ciphertext, wrapped_dek=wrapped_dek)
