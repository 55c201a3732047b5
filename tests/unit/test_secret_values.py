"""What can be seen of a secret: nothing, unless it is asked for."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import pprint
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from django.core.serializers.json import DjangoJSONEncoder

from pikku_storage.exceptions import PayloadError
from pikku_storage.json import to_json
from pikku_storage.secrets import SecretValue
from pikku_storage.secrets.keys import StaticKeys

HIDDEN = "hunter2"
VALUES = [HIDDEN, {"password": HIDDEN}, [HIDDEN]]


@dataclass
class Holder:
    """Something that is printed with what is in it."""

    value: SecretValue


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_it_shows_nothing(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    secret = SecretValue(value)
    logging.getLogger("shop").warning("the value is %s, %r", secret, secret)
    shown = [
        repr(secret),
        str(secret),
        f"{secret} {secret!r} {secret:>20}",
        "%s" % secret,  # noqa: UP031
        pprint.pformat({"value": secret}),
        repr(Holder(secret)),
        repr(asdict(Holder(secret))),
        json.dumps({"value": secret}, default=str),
        caplog.text,
    ]

    assert not [text for text in shown if HIDDEN in text]
    assert all("[secret]" in text for text in shown)
    assert not hasattr(secret, "__dict__")


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_it_is_not_serialized(value: Any) -> None:
    secret = SecretValue(value)
    for write in (json.dumps, DjangoJSONEncoder().encode, pickle.dumps, to_json, lambda given: given.__getstate__()):
        with pytest.raises((TypeError, PayloadError)) as caught:
            write(secret)
        assert HIDDEN not in str(caught.value)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps({"value": secret}, protocol)


def test_a_copy_is_the_same_one() -> None:
    secret = SecretValue(HIDDEN)
    assert copy.copy(secret) is copy.deepcopy({"value": secret})["value"] is secret


def test_what_is_revealed_may_be_changed() -> None:
    given = {"list": [1]}
    secret = SecretValue(given)
    secret.reveal()["list"].append(2)
    assert secret.reveal() == {"list": [1]}


def test_it_equals_what_it_reveals() -> None:
    assert SecretValue({"a": 1}) == SecretValue({"a": 1}) == {"a": 1}
    assert SecretValue("a") != SecretValue("b")
    assert SecretValue("[secret]") != SecretValue("x")
    with pytest.raises(TypeError, match="unhashable"):
        hash(SecretValue("a"))


def test_given_passphrases_are_not_shown_either() -> None:
    assert HIDDEN not in repr(StaticKeys(HIDDEN, 2, {1: HIDDEN}))
