"""What the TypeScript packages sealed and signed, byte for byte."""

import json
from typing import Any

import pytest

from pikku_storage.crypto import envelope, keymaterial, passphrase
from pikku_storage.crypto.text import from_base64url, to_base64url, to_plaintext
from pikku_storage.exceptions import DecryptionError, InvalidEncryptedPayloadError, WeakKeyMaterialError
from tests.data.vectors import load, vectors
from tests.secret_keys import derive_kek

ERRORS = {
    "OperationError": DecryptionError,
    "Error": InvalidEncryptedPayloadError,
    "WeakKeyMaterialError": WeakKeyMaterialError,
}


def name_of(vector: dict[str, Any]) -> str:
    return str(vector.get("name", ""))


def same(value: Any, text: str) -> bool:
    """Whether a value is what the JSON text says; `1` and `1.0` are not the same."""
    return json.dumps(value) == json.dumps(json.loads(text))


def refused(result: dict[str, Any]) -> Any:
    """Expects the error of a vector: of exactly that kind, and with the contract's text where it has one."""
    kind = ERRORS[result["errorName"]]
    text = None if kind is DecryptionError else f"^{result['errorMessage'].replace('.', '[.]')}$"
    return pytest.raises(kind, match=text, check=lambda error: type(error) is kind)


@pytest.mark.parametrize("vector", vectors("envelope"), ids=name_of)
def test_envelopes_open(vector: dict[str, Any]) -> None:
    kek = derive_kek(vector["passphrase"], vector["salt"])

    assert same(envelope.decrypt(kek, vector["ciphertext"], vector["wrappedDEK"]), vector["decryptedJson"])
    assert envelope.unwrap_dek(kek, vector["wrappedDEK"]) == vector["dek"]


@pytest.mark.parametrize("vector", vectors("envelope-negative"), ids=name_of)
def test_envelopes_that_were_changed_do_not(vector: dict[str, Any]) -> None:
    kek = derive_kek(vector["passphrase"], vector["salt"])

    if vector["result"]["ok"]:
        assert envelope.decrypt(kek, vector["ciphertext"], vector["wrappedDEK"]) == vector["result"]["value"]
        return
    with refused(vector["result"]):
        envelope.decrypt(kek, vector["ciphertext"], vector["wrappedDEK"])


@pytest.mark.parametrize("vector", vectors("kek"), ids=lambda vector: vector["salt"])
def test_keys_are_derived(vector: dict[str, Any]) -> None:
    kek = derive_kek(vector["passphrase"], vector["salt"])

    assert kek.hex() == vector["kekHex"]
    assert envelope.unwrap_dek(kek, vector["wrappedProbe"]) == "probe"


@pytest.mark.parametrize("vector", vectors("rewrap"), ids=name_of)
def test_rewrapped_keys_open_the_same_ciphertext(vector: dict[str, Any]) -> None:
    old, new = (derive_kek(**load("rewrap")["keyVersions"][version]) for version in "12")

    assert same(envelope.decrypt(new, vector["ciphertext"], vector["wrappedDEKv2"]), vector["decryptedWithV2Json"])
    rewrapped = envelope.rewrap(old, new, vector["wrappedDEKv1"])
    assert same(envelope.decrypt(new, vector["ciphertext"], rewrapped), vector["plaintextJson"])
    for kek, wrapped in [(new, vector["wrappedDEKv1"]), (old, vector["wrappedDEKv2"])]:
        with pytest.raises(DecryptionError):
            envelope.decrypt(kek, vector["ciphertext"], wrapped)


@pytest.mark.parametrize("vector", vectors("credential-envelope"), ids=name_of)
def test_credentials_are_json_within_json(vector: dict[str, Any]) -> None:
    given = load("credential-envelope")
    kek = derive_kek(given["passphrase"], given["salt"])

    text = envelope.decrypt(kek, vector["ciphertext"], vector["wrappedDEK"])
    assert same(json.loads(text), vector["valueJson"])
    assert to_plaintext(text).decode() == vector["aesPlaintext"]


@pytest.mark.parametrize("vector", vectors("encrypt-json"), ids=name_of)
def test_tokens_under_a_passphrase_open(vector: dict[str, Any]) -> None:
    assert same(passphrase.decrypt(vector["secret"], vector["token"]), vector["decryptedJson"])


@pytest.mark.parametrize("vector", vectors("encrypt-json-negative"), ids=name_of)
def test_tokens_that_were_changed_do_not(vector: dict[str, Any]) -> None:
    with refused(vector["result"]):
        passphrase.decrypt(vector["secret"], vector["token"])


@pytest.mark.parametrize("vector", vectors("remote-session"), ids=name_of)
def test_remote_sessions_open(vector: dict[str, Any]) -> None:
    name = keymaterial.REMOTE_SECRET
    session = keymaterial.decrypt(name, vector["keyMaterial"], vector["info"], vector["token"])

    assert vector["info"] == keymaterial.REMOTE_SESSION_INFO
    assert same(session, vector["decryptedJson"])


@pytest.mark.parametrize("vector", load("remote-session")["negative"], ids=name_of)
def test_remote_sessions_that_were_changed_do_not(vector: dict[str, Any]) -> None:
    open_it = keymaterial.decrypt
    if vector["result"]["ok"]:
        value = open_it(keymaterial.REMOTE_SECRET, vector["keyMaterial"], vector["info"], vector["token"])
        assert value == vector["result"]["value"]
        return
    with refused(vector["result"]):
        open_it(keymaterial.REMOTE_SECRET, vector["keyMaterial"], vector["info"], vector["token"])


@pytest.mark.parametrize("vector", vectors("sign-key-material"), ids=lambda vector: vector["info"])
def test_signatures(vector: dict[str, Any]) -> None:
    given = ("SECRET", vector["keyMaterial"], vector["info"], vector["payload"])

    assert keymaterial.sign(*given) == vector["signature"]
    assert keymaterial.verify(*given, vector["signature"])


def test_weak_material_signs_nothing() -> None:
    weak = load("sign-key-material")["weak"]
    for use in (keymaterial.sign, keymaterial.verify):
        arguments = (weak["name"], weak["keyMaterial"], "info", "payload", "signature")
        with refused(weak["result"]):
            use(*arguments[: use.__code__.co_argcount])


@pytest.mark.parametrize("vector", vectors("base64url-text"), ids=lambda vector: vector["text"])
def test_base64url(vector: dict[str, Any]) -> None:
    assert to_base64url(vector["text"].encode()) == vector["encoded"]
    assert from_base64url(vector["encoded"]).decode() == vector["text"]


def test_the_constants() -> None:
    constants = load("base64url-text")["constants"]

    assert constants["REMOTE_SESSION_INFO"] == keymaterial.REMOTE_SESSION_INFO
    assert constants["MIN_KEY_MATERIAL_LENGTH"] == keymaterial.MIN_LENGTH
    assert constants["sampleSaltLength"] == len(envelope.generate_kek_salt())
    assert constants["sampleDekLength"] == len(envelope.generate_dek())
