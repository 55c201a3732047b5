"""What secrets cost: reading them cold, and sealing many under another key."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.comparison import Comparison
from benchmarks.django_project import prepare_database
from benchmarks.environment import Environment

COLD = 50
MANY = 10_000
PER_SECOND = 5_000
"""How many are to be rotated in a second, beyond the two derivations."""
_GOES = 5
_BATCH = 1_000
Say = Callable[[str], None]


def of_secrets(environment: Environment, alias: str, say: Say) -> Iterator[Comparison]:
    """Both comparisons on the database behind `alias`. Raises `MissingError` without a server."""
    prepare_database(environment, alias)
    from pikku_storage.crypto import envelope
    from pikku_storage.secrets.keys import StaticKeys
    from pikku_storage.secrets.service import SecretService

    engine = "PostgreSQL" if alias == "default" else "SQLite"
    old, new = "a passphrase of the benchmarks, one", "a passphrase of the benchmarks, two"
    say(f"storing {MANY:,} secrets ({alias})")
    before = SecretService(alias, keys=StaticKeys(old))
    names = _store(before, alias)
    derivation = _seconds(lambda: envelope.derive_kek(old, envelope.generate_kek_salt()))
    say(f"reading {COLD} secrets cold ({alias})")
    yield Comparison(
        title=f"{COLD} secrets read cold, {engine}: one derivation, all of it",
        unit="ms",
        first=derivation * 1000,
        second=_seconds(lambda: before.get_secrets(names[:COLD]), prepare=_forget) * 1000,
        goal=1.2,
    )
    say(f"rotating {MANY:,} secrets ({alias})")
    _forget()
    begun = time.perf_counter()
    rotated = SecretService(alias, keys=StaticKeys(new, 2, {1: old})).rotate_kek()
    taken = time.perf_counter() - begun - 2 * derivation
    if rotated != MANY:
        raise RuntimeError(f"{rotated:,} of {MANY:,} were rotated")
    yield Comparison(
        title=f"{MANY:,} secrets rotated, {engine}: what {PER_SECOND:,} a second take, beyond two derivations",
        unit="s",
        first=MANY / PER_SECOND,
        second=taken,
        goal=1.0,
    )


def _store(service: Any, alias: str) -> list[str]:
    """Seal that many secrets, and insert them in batches."""
    from pikku_storage.crypto import bound
    from pikku_storage.crypto.bound import Place
    from pikku_storage.db import engine
    from pikku_storage.db.operations import InsertMany
    from pikku_storage.secrets.models import Secret

    version, kek = service._keyring.kek_to_write()
    names = [f"secret {number}" for number in range(MANY)]
    at = engine(alias).now()
    rows = []
    for name in names:
        sealed = bound.encrypt(kek, name, Place("secrets", name), version)
        rows.append({"key": name, "key_version": version, **sealed._asdict()})
    for start in range(0, MANY, _BATCH):
        common = {"created_at": at, "updated_at": at}
        engine(alias).apply(InsertMany(Secret, common, rows[start : start + _BATCH]))
    return names


def _forget() -> None:
    """As in a process that has just begun."""
    from pikku_storage.secrets import keyring

    keyring.derive_kek.cache_clear()
    keyring._salts.clear()


def _seconds(work: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> float:
    times = []
    for _ in range(_GOES):
        prepare()
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)
