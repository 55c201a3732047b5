"""Passphrases and keys of the tests. A derived key is kept, because a derivation takes a fifth of a second."""

from functools import cache

from pikku_storage.crypto import envelope

SALT = "AAECAwQFBgcICQoLDA0ODw"
PASSPHRASE = "a passphrase of the tests, version one"
NEXT_PASSPHRASE = "a passphrase of the tests, version two"
derive_kek = cache(envelope.derive_kek)


def keys_of_version(version: int) -> dict[str, object]:
    """The settings with that version current, and those before it."""
    passphrases = {number: f"a passphrase of the tests, version {number}" for number in range(2, version + 1)}
    passphrases[1] = PASSPHRASE
    return {
        "SECRET_KEK": passphrases.pop(version),
        "SECRET_KEK_VERSION": version,
        "SECRET_PREVIOUS_KEKS": passphrases,
    }
