"""Secrets and credentials in the console: what is shown, set, revealed and deleted, and what never is."""

from __future__ import annotations

import html
import json
import logging
import re
from collections.abc import Callable
from typing import Any

import django
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.secrets.admin import sealed
from console.secrets.admin.secrets import SecretAdmin
from pikku_storage.audit.models import AuditEntry
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.models import Credential, CredentialAudit, Secret, SecretAudit
from pikku_storage.secrets.service import SecretService
from tests.console.conftest import client_of, context_of, staff_with
from tests.secret_keys import NEXT_PASSPHRASE, PASSPHRASE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("known_salt")]

VALUE = "hunter2-and-more"
HOSTILE = ["a/b", "50%_of~it", "<b>'\"&", "🔑 key", "x~y~z", "quo\"te'"]
UseKeys = Callable[..., None]


def url(view: str, pk: str = "", model: str = "secret") -> str:
    return reverse(f"admin:pikku_secrets_{model}_{view}", args=[quote(pk)] if pk else [])


def page(response: Any, status: int = 200) -> str:
    assert response.status_code == status
    text: str = response.content.decode()
    return text


def holder(*verbs: str, area: str = "secrets") -> Client:
    return client_of(staff_with(*(f"admin:{area}:{verb}" for verb in verbs), name=" ".join(verbs)))


def audits() -> list[tuple[str, str | None, str | None, str | None]]:
    rows = SecretAudit.objects.order_by("performed_at", "id")
    return list(rows.values_list("action", "performed_by", "outcome", "reason"))


def trail(kind: str) -> list[tuple[str | None, str | None, Any]]:
    rows = AuditEntry.objects.filter(type=kind)
    return [(row.user_id, row.outcome, json.loads(row.data or "{}")) for row in rows]


# -- lists and pages -------------------------------------------------------------------------------------------------


def test_what_a_reader_sees() -> None:
    SecretService(audit=True).set_secret("stripe", VALUE)
    reader = holder("read")
    listed, shown = page(reader.get(url("changelist"))), page(reader.get(url("change", "stripe")))

    row = Secret.objects.get()
    for text in (listed, shown):
        assert "stripe" in text
        assert not [part for part in (VALUE, row.ciphertext, row.wrapped_dek, PASSPHRASE) if part in text]
    assert "bound" in listed
    assert "written" in shown
    assert "system" in shown
    # What one may not do is not a link.
    assert not re.findall(r'href="[^"]*/(reveal|set|delete|add)/"', listed + shown)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(root_client: Client, name: str) -> None:
    SecretService().set_secret(name, VALUE)
    listed = page(root_client.get(url("changelist")))
    links = re.findall(r'<a href="([^"]*/change/)"', listed)
    shown = page(root_client.get(html.unescape(links[0])))
    assert f"<h1>{html.escape(name)}</h1>" in shown
    assert f"<h1>{name}</h1>" not in shown or html.escape(name) == name
    for view in ("set", "reveal", "delete"):
        assert html.escape(name) in page(root_client.get(url(view, name)))
    assert VALUE in page(root_client.post(url("reveal", name), {"reason": name}))
    assert html.escape(name) in page(root_client.get(url("change", name)))


def test_paging_by_name_also_past_names_with_the_separator(root_client: Client) -> None:
    names = sorted([*HOSTILE, *(f"key~{index:03d}%7E" for index in range(120))])
    for name in names:
        SecretService().set_secret(name, 1)
    seen, address = [], url("changelist")
    while address:
        changes = context_of(root_client.get(address))["cl"]
        seen += [row.pk for row in changes.result_list]
        address = changes.older_url and url("changelist") + changes.older_url
    assert sorted(seen) == names
    assert len(seen) == len(names)
    found = context_of(root_client.get(url("changelist"), {"q": "key~00"}))["cl"].result_list
    assert len(found) == 10


@pytest.mark.parametrize("model", ["secret", "credential"])
def test_a_list_costs_the_same_however_many(root_client: Client, model: str) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(root_client.get(url("changelist", model=model)))
        for query in captured.captured_queries:
            assert '"ciphertext"' not in query["sql"]
        return len(captured)

    def fill(numbers: range) -> None:
        for number in numbers:
            user = User.objects.create_user(f"user {number}")
            SecretService().set_secret(f"key {number}", number)
            CredentialService().set("github", number, str(user.pk))

    fill(range(3))
    # The first one keeps the salt.
    count()
    few = count()
    fill(range(3, 45))
    assert count() == few


def test_the_page_of_a_secret_costs_the_same_however_much_was_done(root_client: Client, superuser: User) -> None:
    service = SecretService(audit=True)
    service.set_secret("stripe", VALUE, by=superuser)

    def count() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(root_client.get(url("change", "stripe")))
        return len(captured)

    # The first one keeps the salt.
    count()
    few = count()
    for number in range(60):
        service.set_secret("stripe", number, by=User.objects.create_user(f"user {number}"))
    assert count() == few
    assert len(context_of(root_client.get(url("change", "stripe")))["audits"]) == 50


# -- reveal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (VALUE, VALUE),
        ("<script>alert(1)</script>\n two", "&lt;script&gt;alert(1)&lt;/script&gt;\n two"),
        ({"token": "t&t", "n": [1]}, html.escape(json.dumps({"token": "t&t", "n": [1]}, indent=2))),
        (0, "0"),
        ("", ""),
    ],
)
def test_revealing(value: Any, shown: str, settings: Any) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "SECRET_AUDIT": False}
    SecretService().set_secret("stripe", value)
    revealer = holder("reveal")
    user = User.objects.get()

    asked = page(revealer.get(url("reveal", "stripe")))
    assert audits() == []
    if shown:
        assert f">\n{shown}</pre>" not in asked
    response = revealer.post(url("reveal", "stripe"), {"reason": "the shop is down"})

    assert f">\n{shown}</pre>" in page(response)
    assert "no-store" in response.headers["Cache-Control"]
    assert '<details class="pk-value">' in page(response)
    # It was audited, although the settings ask for none.
    assert audits() == [("read", str(user.pk), "success", "the shop is down")]
    row = page(revealer.get(url("change", "stripe")))
    assert re.search(r"reveal</td><td>read</td><td><span[^>]*>success</span></td><td[^>]*>the shop is down</td>", row)
    [entry] = LogEntry.objects.all()
    assert (entry.user_id, entry.object_id, entry.change_message) == (user.pk, "stripe", "revealed: the shop is down")


@pytest.mark.django_db(transaction=True)
def test_the_trail_knows_who_reveals_and_who_was_refused() -> None:
    SecretService().set_secret("stripe", VALUE)
    writer, revealer = holder("write"), holder("reveal")

    page(writer.post(url("reveal", "stripe")), 403)
    page(revealer.post(url("set", "stripe"), {"kind": "text", "value": "other"}), 403)
    page(revealer.post(url("delete", "stripe")), 403)
    page(revealer.post(url("add"), {"name": "new", "kind": "text", "value": "other"}), 403)
    page(revealer.post(url("reveal", "stripe")))

    ids = {user.username: str(user.pk) for user in User.objects.all()}
    assert sorted(trail("secret.read"), key=str) == sorted(
        [(ids["write"], "denied", {"key": "stripe"}), (ids["reveal"], "success", {"key": "stripe"})], key=str
    )
    assert (ids["reveal"], "denied", {"key": "stripe"}) in trail("secret.written")
    assert trail("secret.deleted") == [(ids["reveal"], "denied", {"key": "stripe"})]
    assert SecretService().get_secret("stripe") == VALUE
    assert Secret.objects.count() == 1


@pytest.mark.parametrize("keys", [{"SECRET_KEK": NEXT_PASSPHRASE}, {"SECRET_KEK": None}], ids=["another", "none"])
def test_a_key_that_does_not_fit_loses_nothing(use_keys: UseKeys, root_client: Client, keys: dict[str, Any]) -> None:
    SecretService().set_secret("stripe", VALUE)
    before = Secret.objects.values().get()
    use_keys(**keys)

    told = page(root_client.post(url("reveal", "stripe")))
    assert "errorlist" in told
    assert audits()[-1][2] == "failed"
    for view, data in (("set", {}), ("add", {"name": "new"})):
        page(root_client.post(url(view, "stripe" if view == "set" else ""), {"kind": "text", "value": "other", **data}))
    for view in ("changelist", "add"):
        assert "Until then nothing can be set" in page(root_client.get(url(view)))
    assert "It does not open." in page(root_client.get(url("change", "stripe")))
    assert Secret.objects.values().get() == before

    use_keys()
    assert VALUE in page(root_client.post(url("reveal", "stripe")))


def test_settings_that_cannot_be_read_are_no_error_page(use_keys: UseKeys, root_client: Client) -> None:
    SecretService().set_secret("stripe", VALUE)
    use_keys(KEY_PROVIDER="nowhere.Vault")
    for address in (url("changelist"), url("add"), url("set", "stripe"), url("change", "stripe")):
        page(root_client.get(address))
    assert "`manage.py check` says why" in html.unescape(page(root_client.get(url("changelist"))))


def test_it_was_deleted_meanwhile(root_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    SecretService().set_secret("stripe", VALUE)
    row = Secret.objects.get()
    SecretService().delete_secret("stripe")
    monkeypatch.setattr(sealed.SealedRowAdmin, "_row", lambda *args: row)
    page(root_client.post(url("reveal", "stripe")), 404)


# -- set and delete --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "typed", "stored"),
    [
        ("text", VALUE, VALUE),
        ("text", " -----BEGIN-----\r\nabc\r\n", " -----BEGIN-----\nabc\n"),
        ("text", "{}", "{}"),
        ("json", '{"a": [1, null]}', {"a": [1, None]}),
        ("json", "0", 0),
    ],
)
def test_setting(kind: str, typed: str, stored: Any) -> None:
    writer = holder("write")
    user = User.objects.get()
    response = writer.post(url("add"), {"name": "stripe", "kind": kind, "value": typed, "reason": "new"}, follow=True)
    assert response.redirect_chain[-1][0] == url("change", "stripe")
    assert SecretService().get_secret("stripe") == stored
    again = writer.post(url("set", "stripe"), {"kind": "text", "value": "other"}, follow=True)
    assert [str(message) for message in get_messages(again.wsgi_request)][-1] == "stripe is set."
    assert SecretService().get_secret("stripe") == "other"
    assert audits() == [("write", str(user.pk), "success", "new"), ("write", str(user.pk), "success", None)]
    assert list(LogEntry.objects.order_by("pk").values_list("action_flag", "object_id", "change_message")) == [
        (1, "stripe", "set: new"),
        (2, "stripe", "set"),
    ]


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"kind": "json", "value": f'{{"a": "{VALUE}"'}, "value"),
        ({"kind": "json", "value": f'["{VALUE}", NaN]'}, "__all__"),
        ({"kind": "json", "value": f'"{VALUE}"' + "[" * 100_000}, "value"),
        ({"kind": "json", "value": "[" * 100_000}, "value"),
        ({"kind": "other", "value": VALUE}, "kind"),
        ({"kind": "text", "value": ""}, "value"),
        ({"kind": "text", "value": VALUE, "name": "n" * 256}, "name"),
        ({"kind": "text", "value": VALUE, "name": "there"}, "name"),
        ({"kind": "text", "value": VALUE, "reason": "r" * 501}, "reason"),
    ],
)
def test_what_cannot_be_set_is_said_and_not_repeated(root_client: Client, data: dict[str, str], field: str) -> None:
    SecretService().set_secret("there", 1)
    response = root_client.post(url("add"), {"name": "stripe", **data})
    assert context_of(response)["form"].errors.keys() == {field}
    assert VALUE not in page(response)
    assert list(Secret.objects.values_list("pk", flat=True)) == ["there"]
    assert SecretService().get_secret("there") == 1


def test_deleting() -> None:
    SecretService().set_secret("stripe", VALUE)
    writer = holder("write")
    user = User.objects.get()
    assert "Nothing can bring it back" in page(writer.get(url("delete", "stripe")))
    assert Secret.objects.exists()
    response = writer.post(url("delete", "stripe"), {"reason": "unused"}, follow=True)
    assert response.redirect_chain[-1][0] == url("changelist")
    assert not Secret.objects.exists()
    assert audits()[-1] == ("delete", str(user.pk), "success", "unused")
    assert LogEntry.objects.get().action_flag == 3


# -- what is nowhere -------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_values_and_keys_are_in_nothing_that_is_kept(root_client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    # Drivers write down what they send to the database, which is sealed.
    for driver in ("django.db.backends", "pymongo"):
        caplog.set_level(logging.INFO, logger=driver)
    responses = [
        root_client.post(url("add"), {"name": "stripe", "kind": "text", "value": VALUE}, follow=True),
        root_client.post(url("set", "stripe"), {"kind": "json", "value": json.dumps([VALUE])}, follow=True),
        root_client.post(url("set", "stripe"), {"kind": "json", "value": f"[{VALUE}"}),
        *(root_client.get(url(view, "stripe")) for view in ("change", "set", "reveal", "delete")),
    ]
    revealed = page(root_client.post(url("reveal", "stripe")))
    responses += [
        root_client.get(url("changelist")),
        root_client.get("/admin/"),
        root_client.get(url("change", "stripe")),
    ]
    row = Secret.objects.get()
    kept = [response.content.decode() for response in responses]
    kept += [str(message) for response in responses for message in get_messages(response.wsgi_request)]
    kept += [str(values) for model in (LogEntry, SecretAudit, AuditEntry) for values in model._default_manager.values()]
    kept += [caplog.text, *map(str, (record.__dict__ for record in caplog.records))]
    assert VALUE in revealed
    assert len(AuditEntry.objects.filter(type__startswith="secret.")) == 3
    for hidden in (VALUE, PASSPHRASE, row.ciphertext, row.wrapped_dek):
        assert not [text for text in kept if hidden in text]
    assert not [text for text in (PASSPHRASE, row.ciphertext, row.wrapped_dek) if text in revealed]


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize(
    ("view", "broken"),
    [("set", "put_value"), ("set", "log_change"), ("reveal", "open_value"), ("reveal", "render"), ("add", "row_of")],
)
def test_no_error_page_shows_a_value(
    superuser: User,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    mailoutbox: Any,
    debug: bool,
    view: str,
    broken: str,
) -> None:
    SecretService().set_secret("stripe", VALUE)
    settings.DEBUG = debug
    settings.ADMINS = ["ops@example.com"] if django.VERSION >= (6, 0) else [("ops", "ops@example.com")]
    client = Client(raise_request_exception=False)
    client.force_login(superuser)

    def fail(self: Any, *args: Any, **kwargs: Any) -> None:
        given = str(args), str(kwargs)
        raise RuntimeError("the disk is full", len(given))

    monkeypatch.setattr(SecretAdmin, broken, fail)
    data = {"name": "new", "kind": "text", "value": VALUE, "reason": "x"}
    response = client.post(url(view, "" if view == "add" else "stripe"), data)
    text = page(response, 500)
    if debug:
        assert "the disk is full" in text
        # The parts that are shown of other pages are there, and covered.
        assert "********************" in text
    else:
        assert "the disk is full" in mailoutbox[0].body
    for hidden in (text, *(str(mail.body) + str(mail.alternatives) for mail in mailoutbox)):
        assert VALUE not in hidden
        assert PASSPHRASE not in hidden


# -- keys ------------------------------------------------------------------------------------------------------------


def test_the_progress_of_a_rotation(use_keys: UseKeys, root_client: Client) -> None:
    service = SecretService()
    for number in range(3):
        service.set_secret(f"old {number}", number)
    use_keys(2)
    service.set_secret("new", 1)

    progress = context_of(root_client.get(url("changelist")))["progress"]
    assert [(each.number, each.status, each.rows) for each in progress.versions] == [
        (1, "outdated", 3),
        (2, "current", 1),
    ]
    assert (progress.done, progress.total, progress.outdated, progress.closed) == (1, 4, 3, 0)
    shown = page(root_client.get(url("changelist")))
    assert "would still seal 3 rows under version 2" in shown
    # Not where one looks for something else.
    assert "progress" not in context_of(root_client.get(url("changelist"), {"q": "old"}))

    use_keys(2, SECRET_PREVIOUS_KEKS={})
    shown = page(root_client.get(url("changelist")))
    assert "3 rows cannot be opened by any key that is configured" in shown
    assert "would still seal" not in shown

    use_keys(2)
    service.rotate_kek()
    progress = context_of(root_client.get(url("changelist")))["progress"]
    assert (progress.done, progress.total, progress.outdated) == (4, 4, 0)


def test_a_salt_that_is_gone(use_keys: UseKeys, root_client: Client) -> None:
    SecretService().set_secret("stripe", VALUE)
    from pikku_storage.secrets import keyring
    from pikku_storage.secrets.models import SecretKekSalt

    SecretKekSalt.objects.all().delete()
    keyring._salts.clear()
    progress = context_of(root_client.get(url("changelist")))["progress"]
    assert [(each.status, each.rows) for each in progress.versions] == [("unsalted", 1)]
    assert progress.closed == 1


# -- credentials -----------------------------------------------------------------------------------------------------


def test_credentials_of_users(root_client: Client) -> None:
    olga, ivan = (User.objects.create_user(name) for name in ("olga", "ivan"))
    for typed, user in (("olga's", "olga"), ("ivan's", str(ivan.pk)), ("all's", "")):
        data = {"name": "github", "user": user, "kind": "text", "value": typed}
        assert root_client.post(url("add", model="credential"), data).status_code == 302
    service = CredentialService()
    assert [service.get("github", str(olga.pk)), service.get("github", str(ivan.pk)), service.get("github")] == [
        "olga's",
        "ivan's",
        "all's",
    ]

    def listed(**query: str) -> list[str | None]:
        rows = context_of(root_client.get(url("changelist", model="credential"), query))["cl"].result_list
        return sorted((row.user_id for row in rows), key=str)

    service.set("slack", 1, str(olga.pk))
    assert listed() == sorted([str(olga.pk), str(olga.pk), str(ivan.pk), None], key=str)
    assert listed(name="slack") == listed(q="sla") == [str(olga.pk)]
    assert listed(q="olga") == listed(q=str(olga.pk)) == [str(olga.pk)] * 2
    assert listed(whose="everybody") == [None]
    assert len(listed(whose="users")) == 3
    assert "olga" in page(root_client.get(url("changelist", model="credential")))

    pk = Credential.id_of("github", str(olga.pk))
    assert "olga&#x27;s" in page(root_client.post(url("reveal", pk, "credential"), {"reason": "help"}))
    found: Any = CredentialAudit._default_manager.filter(action="read")
    assert list(found.values_list("credential_name", "user_id", "reason")) == [("github", str(olga.pk), "help")]
    shown = page(root_client.get(url("change", pk, "credential")))
    assert "help" in shown
    # Nobody else's audit has it.
    for other in (str(ivan.pk), None):
        assert "help" not in page(root_client.get(url("change", Credential.id_of("github", other), "credential")))
    root_client.post(url("delete", pk, "credential"))
    assert service.get("github", str(olga.pk)) is None
    assert service.get("github", str(ivan.pk)) == "ivan's"


def test_a_credential_needs_a_user_that_there_is(root_client: Client) -> None:
    data = {"name": "github", "user": "olgaa", "kind": "text", "value": VALUE}
    response = root_client.post(url("add", model="credential"), data)
    assert context_of(response)["form"].errors.keys() == {"user"}
    assert not Credential.objects.exists()
