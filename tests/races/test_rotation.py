"""Rotations that meet writers and each other, and rotations that are killed: no value is lost or damaged."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import call_command

from pikku_storage.crypto import envelope
from pikku_storage.crypto.bound import Place
from pikku_storage.db import engine
from pikku_storage.db.operations import InsertMany
from pikku_storage.secrets import keyring, store
from pikku_storage.secrets.models import Secret, SecretAudit, SecretKekSalt
from pikku_storage.secrets.rotation import rotate
from pikku_storage.secrets.sealing import seal
from pikku_storage.secrets.service import SecretService
from pikku_storage.secrets.store import SEALED_COLUMNS
from pikku_storage.secrets.tables import sealed_tables
from pikku_storage.secrets.values import SecretValue
from tests.conformance.support import DATABASE
from tests.races.together import processes, together
from tests.secret_keys import keys_of_version

pytestmark = pytest.mark.django_db(transaction=True)

UseKeys = Callable[..., None]
SECRETS = 60
MANY = 300
BATCHES = 2


def store_many(count: int) -> list[str]:
    """Secrets under the current key, each its own number, by one statement."""
    names = [f"S{number}" for number in range(count)]
    sealing_keys = sealed_tables()[0].keyring
    rows = []
    for number, name in enumerate(names):
        sealed = seal(sealing_keys, name, Place("secrets", name), SecretValue(number), binds=True)
        rows.append({"key": name, **{column: getattr(sealed, column) for column in SEALED_COLUMNS}})
    at = engine(DATABASE).now()
    engine(DATABASE).apply(InsertMany(Secret, {"created_at": at, "updated_at": at}, rows))
    return names


def versions() -> Counter[int]:
    return Counter(Secret.objects.order_by().values_list("key_version", flat=True))


def test_first_writers_agree_on_one_salt(use_keys: UseKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "ITERATIONS", 1)
    salts = iter([f"AAAAAAAAAAAAAAAAAAAA{number:02}" for number in range(50)])
    monkeypatch.setattr(envelope, "generate_kek_salt", lambda: next(salts))
    keyring.derive_kek.cache_clear()
    try:
        together(*[lambda number=number: SecretService().set_secret(f"S{number}", number) for number in range(12)])
        assert SecretKekSalt.objects.count() == 1
        assert SecretService().get_secrets(f"S{n}" for n in range(12)) == {f"S{n}": n for n in range(12)}
    finally:
        # They were derived with one iteration.
        keyring.derive_kek.cache_clear()


def test_writers_and_two_rotations_damage_nothing(use_keys: UseKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    use_keys(SECRET_AUDIT=False)
    for number in range(SECRETS):
        SecretService().set_secret(f"S{number}", ["old", number])
    use_keys(2)
    monkeypatch.setattr(store, "BATCH", 5)
    # Derived before the race begins.
    sealed_tables()[0].keyring.kek_to_write()

    def write(offset: int) -> None:
        for number in range(offset, SECRETS, 3):
            SecretService().set_secret(f"S{number}", ["new", number])

    def rotate_all() -> int:
        counts = 0
        for progress in rotate(sealed_tables()[0]):
            assert progress.failures == []
            counts += progress.rotated
        return counts

    answers = together(rotate_all, rotate_all, lambda: write(0), lambda: write(1))
    assert sum(filter(None, answers)) <= SECRETS
    expected = {f"S{n}": ["old" if n % 3 == 2 else "new", n] for n in range(SECRETS)}
    assert versions() == {2: SECRETS}
    assert SecretService().get_secrets(expected) == expected


def test_a_rotation_that_is_killed_is_finished_by_the_next_one(use_keys: UseKeys, process_env: dict[str, str]) -> None:
    use_keys(SECRET_AUDIT=False)
    names = store_many(MANY)
    use_keys(2, SECRET_AUDIT=True)
    given = keys_of_version(2)
    variables = {
        "PIKKU_SECRET_KEK": str(given["SECRET_KEK"]),
        "PIKKU_SECRET_KEK_VERSION": "2",
        "PIKKU_SECRET_PREVIOUS_KEKS": json.dumps(given["SECRET_PREVIOUS_KEKS"]),
    }
    with processes("tests.races.rotator", [[]], {**process_env, **variables}) as (rotator,):
        assert rotator.stdout is not None
        assert [rotator.stdout.readline() for _ in range(BATCHES)] == ["batch\n"] * BATCHES
        rotator.send_signal(signal.SIGKILL)
        rotator.wait()
    assert rotator.returncode == -signal.SIGKILL

    found = versions()
    assert 0 < found[2] < MANY
    assert found[1] + found[2] == MANY
    values = {name: number for number, name in enumerate(names)}
    assert SecretService().get_secrets(values) == values, "whichever version each is of"
    out = StringIO()
    call_command("rotate_keys", "--json", stdout=out)
    table = json.loads(out.getvalue())["tables"][0]
    assert (table["rotated"], table["left"]) == (found[1], 0)
    assert versions() == {2: MANY}
    assert SecretService().get_secrets(values) == values
    assert SecretAudit.objects.filter(action="rotate").count() >= found[1]
