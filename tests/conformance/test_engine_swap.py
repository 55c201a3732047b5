"""Many rows, each compared and swapped by itself."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pikku_storage.db import engine
from pikku_storage.db.operations import Insert, Swap
from pikku_storage.secrets.models import Secret
from tests.conformance.support import DATABASE

pytestmark = pytest.mark.django_db(transaction=True)

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)
LATER = datetime(2026, 3, 2, 10, tzinfo=UTC)


@pytest.fixture
def three() -> None:
    for key in "abc":
        values = {"key": key, "ciphertext": key, "wrapped_dek": f"{key}1", "key_version": 1}
        engine(DATABASE).apply(Insert(Secret, {**values, "created_at": AT, "updated_at": AT}))


def swap(*swaps: Swap, **common: Any) -> int:
    return engine(DATABASE).swap(Secret, "wrapped_dek", swaps, common)


def stored() -> list[tuple[str, str, int]]:
    rows: Any = Secret.objects.order_by("key")
    return list(rows.values_list("key", "wrapped_dek", "key_version"))


@pytest.mark.usefixtures("three")
def test_who_still_has_what_was_seen_gets_what_is_new() -> None:
    swaps = [Swap("a", "a1", {"wrapped_dek": "a2"}), Swap("b", "B1", {"wrapped_dek": "b2"})]
    swaps += [Swap("nobody", "x", {"wrapped_dek": "y"}), Swap("c", "c1", {"wrapped_dek": "c2"})]

    assert swap(*swaps, key_version=2, updated_at=LATER) == 2
    assert stored() == [("a", "a2", 2), ("b", "b1", 1), ("c", "c2", 2)]
    assert Secret.objects.get(pk="a").updated_at == LATER
    assert swap(*swaps, key_version=3, updated_at=LATER) == 0


@pytest.mark.usefixtures("three")
def test_none_are_none() -> None:
    assert swap(key_version=2) == 0


@pytest.mark.usefixtures("three")
def test_all_rows_of_a_call_get_the_same_columns() -> None:
    one = Swap("a", "a1", {"wrapped_dek": "a2"})
    with pytest.raises(ValueError, match="the same columns"):
        swap(one, Swap("b", "b1", {"wrapped_dek": "b2", "ciphertext": "x"}), key_version=2)
    assert stored()[0] == ("a", "a1", 1)
