"""Values, keys and passphrases are in no error, traceback, log line or debug page."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import RequestFactory
from django.views.debug import ExceptionReporter

import pikku_storage
from pikku_storage.crypto import envelope
from pikku_storage.db import Engine
from pikku_storage.exceptions import KeyNotAvailableError, PayloadError, SecretDecryptionError
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.keyring import Keyring
from pikku_storage.secrets.keys import Purpose, StaticKeys
from pikku_storage.secrets.models import Credential, Secret
from pikku_storage.secrets.service import SecretService
from tests.secret_keys import NEXT_PASSPHRASE, PASSPHRASE
from tests.shelf.models import Box, put_raw

pytestmark = pytest.mark.django_db(transaction=True)

PACKAGE = str(Path(pikku_storage.__file__).parent)
VALUE = "hunter2-and-more"


def frames(trace: TracebackType | None) -> Iterator[tuple[str, dict[str, Any]]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_frame.f_locals
        trace = trace.tb_next


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def hidden_texts() -> list[str]:
    keyring = Keyring(Purpose.SECRETS)
    return [VALUE, PASSPHRASE, NEXT_PASSPHRASE, repr(bytes(next(keyring.keks_to_read(1))))]


def assert_hidden(error: BaseException, *hidden: str) -> None:
    """In the error, whatever caused it, and every variable of every frame of this package."""
    shown = ["".join(traceback.format_exception(each)) for each in chain(error)]
    for each in chain(error):
        shown += [repr(local) for path, local in frames(each.__traceback__) if path.startswith(PACKAGE)]
    assert len(shown) > 2
    for text in hidden:
        assert not [part for part in shown if text in part]


@pytest.fixture(params=["set", "read", "read a credential", "wrong key", "no JSON", "field", "database"])
def failing(
    request: pytest.FixtureRequest, use_keys: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Any]:
    """Something that fails while it has a value or a key in its hands."""
    secrets, credentials = SecretService(), CredentialService()
    secrets.set_secret("API_KEY", VALUE)
    credentials.set("stripe", {"apiKey": VALUE})
    Box.objects.create(id="A", note=VALUE)
    wrong = StaticKeys(NEXT_PASSPHRASE)

    def fail(*args: Any, **options: Any) -> Any:
        raise DatabaseError("the database is restarting")

    if request.param == "set":
        return lambda: secrets.set_secret("API_KEY", {VALUE: [VALUE, object()]})
    if request.param == "read":
        Secret.objects.update(ciphertext="pk2.AAAA")
        return lambda: secrets.get_secret("API_KEY")
    if request.param == "read a credential":
        Credential.objects.update(wrapped_dek="pk2.AAAA")
        return lambda: credentials.get("stripe")
    if request.param == "wrong key":
        return lambda: SecretService(keys=wrong).set_secret("API_KEY", VALUE)
    if request.param == "no JSON":
        kek = next(Keyring(Purpose.CREDENTIALS).keks_to_read(1))
        Credential.objects.update(**envelope.encrypt(kek, f"{VALUE} {{")._asdict())
        return lambda: credentials.get("stripe")
    if request.param == "field":
        put_raw("A", "note", VALUE)
        return lambda: Box.objects.get()
    monkeypatch.setattr(Engine, "now", fail)
    return lambda: secrets.set_secret("API_KEY", VALUE)


def test_no_frame_shows_a_value_or_a_key(failing: Callable[[], Any], request: pytest.FixtureRequest) -> None:
    hidden = hidden_texts()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of several kinds
        failing()
    # A text that somebody wrote into the column is no secret of ours, and Django's own frames have it.
    assert_hidden(caught.value, *(hidden if request.node.callspec.params["failing"] != "field" else hidden[1:]))


@pytest.mark.parametrize(
    ("failing", "kind"),
    [("set", PayloadError), ("read", SecretDecryptionError), ("wrong key", KeyNotAvailableError)],
    indirect=["failing"],
)
def test_the_debug_page_shows_nothing(failing: Callable[[], Any], kind: type[Exception]) -> None:
    """Not even with DEBUG on, where Django hides no variable of a frame."""
    hidden = hidden_texts()
    try:
        failing()
    except kind as error:
        # From the package's first frame on: this test has the value in a variable of its own.
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
            trace = trace.tb_next
        shown = error.with_traceback(trace)
        page = ExceptionReporter(RequestFactory().get("/"), kind, shown, trace).get_traceback_html()
    assert "SECRET_KEK" in page, "the settings are on it"
    for text in hidden:
        assert text not in page
        assert text.replace("'", "&#x27;") not in page


def test_nothing_is_logged(use_keys: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    SecretService().set_secret("API_KEY", VALUE)
    SecretService().get_secret("API_KEY").reveal()
    use_keys(2)
    SecretService().rotate_kek()
    for text in hidden_texts():
        assert text not in caplog.text
