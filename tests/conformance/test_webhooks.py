"""Webhooks: what is stored and sent, how they are tried again, and where they may not go."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.core.management import CommandError, call_command
from django.db import transaction
from kombu.exceptions import OperationalError
from pytest_django import Settings

from pikku_storage.db import mongodb
from pikku_storage.db.clock import travel
from pikku_storage.exceptions import PayloadError, WebhookBlockedError, WebhookInputError, WebhookNotFoundError
from pikku_storage.secrets.service import SecretService
from pikku_storage.testing.clock import frozen_clock
from pikku_storage.webhooks import attempts, tasks, transport, verify_webhook
from pikku_storage.webhooks.models import WebhookDelivery
from pikku_storage.webhooks.records import Attempt, Delivery
from pikku_storage.webhooks.service import WebhookService
from tests.conformance.failing import WAYS, Way, failing
from tests.conformance.support import (
    DATABASE,
    MINUTE,
    SECOND,
    about_sql,
    connection,
    data_statements,
    needs_transactions,
)
from tests.servers.receiver import Receiver, receiving

pytestmark = pytest.mark.django_db(transaction=True)

ALLOWED = {"WEBHOOK_ALLOWED_HOSTS": ["127.0.0.0/8"], "WEBHOOK_TIMEOUT": "2s"}


@pytest.fixture(autouse=True)
def _local(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, **ALLOWED}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The messages that were sent."""
    messages: list[dict[str, Any]] = []

    def apply_async(args: Any, kwargs: Any, **options: Any) -> None:
        messages.append({"args": args, "kwargs": kwargs, **options})

    monkeypatch.setattr(tasks.deliver, "apply_async", apply_async)
    return messages


@pytest.fixture
def webhooks(posted: list[Any]) -> WebhookService:
    return WebhookService(worker="worker-1")


def attempts_of(delivery: Delivery) -> tuple[Attempt, ...]:
    found = WebhookService().get_delivery(delivery.delivery_id)
    assert found is not None
    return found.attempts


def delivery_of(delivery: Delivery) -> Delivery:
    found = WebhookService().get_delivery(delivery.delivery_id)
    assert found is not None
    return found.delivery


def stored(delivery: Delivery) -> dict[str, Any]:
    return dict(WebhookDelivery.objects.values().get(pk=delivery.delivery_id))


# -- what is stored and sent -------------------------------------------------------------------------------------------


@pytest.mark.contract("WH-01", "WH-04")
def test_what_is_sent_is_stored_and_announced_by_its_id(webhooks: WebhookService, posted: list[Any]) -> None:
    delivery = webhooks.send("https://hooks.test/x", {"order": "A17"}, event="order.paid", organization_id="shop")
    assert (delivery.status, delivery.attempts, delivery.max_attempts) == ("pending", 0, 4)
    assert delivery_of(delivery) == delivery
    row = stored(delivery)
    assert (row["body"], row["headers"], row["retry_delay"]) == ('{"order":"A17"}', None, "exponential")
    (message,) = posted
    assert message["args"] == (delivery.delivery_id,)
    assert message["kwargs"] == {"using": webhooks.using}, "ids only"
    assert message["queue"] == "celery"


@needs_transactions
def test_it_is_announced_when_it_is_committed(webhooks: WebhookService, posted: list[Any]) -> None:
    with transaction.atomic(using=DATABASE):
        webhooks.send("https://hooks.test/x", {})
        assert posted == []
    assert len(posted) == 1
    with transaction.atomic(using=DATABASE):
        webhooks.send("https://hooks.test/x", {})
        transaction.set_rollback(True, using=DATABASE)
    assert len(posted) == len(webhooks.list_deliveries()) == 1


@pytest.mark.contract("WH-10", "WH-12", "WH-14", "WH-02")
def test_a_delivery_is_posted_as_it_is_stored(webhooks: WebhookService, receiver: Receiver) -> None:
    delivery = webhooks.send(f"{receiver.url}?a=ä b"[:-2], {"text": "Größe 🦀"}, event="e", headers={"X-Shop": "1"})
    assert webhooks.deliver(delivery.delivery_id) == "delivered"
    (request,) = receiver.requests
    assert request.body == '{"text":"Größe 🦀"}'.encode()
    sent = {name: request.headers.get(name) for name in ("Content-Type", "X-Pikku-Event", "X-Shop", "X-Pikku-Delivery")}
    assert list(sent.values()) == ["application/json", "e", "1", delivery.delivery_id]
    assert "X-Pikku-Signature" not in request.headers
    assert request.headers["Host"] == f"127.0.0.1:{receiver.port}"
    found = delivery_of(delivery)
    assert (found.status, found.attempts, found.next_attempt_at) == ("delivered", 1, None)
    assert found.delivered_at == found.updated_at
    (tried,) = attempts_of(delivery)
    assert (tried.attempt_number, tried.status_code, tried.response_body, tried.error) == (1, 200, None, None)
    assert webhooks.deliver(delivery.delivery_id) is None, "a second message does nothing"
    assert len(receiver.requests) == 1


@pytest.mark.contract("WH-07", "WH-09")
def test_a_secret_signs_and_is_nowhere_else(
    webhooks: WebhookService, receiver: Receiver, posted: list[Any], settings: Settings
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "WEBHOOK_SIGNATURE_HEADER": "X-Shop-Signature"}
    forged = {"x-shop-signature": "forged", "content-type": "text/x-json"}
    delivery = webhooks.send(receiver.url, {"a": 1}, secret="whsec-hush", headers=forged)
    webhooks.deliver(delivery.delivery_id)
    (request,) = receiver.requests
    assert verify_webhook("whsec-hush", request.body, request.headers["X-Shop-Signature"])
    assert "forged" not in request.headers.values()
    assert [value for name, value in request.headers.items() if name.lower() == "content-type"] == ["text/x-json"]
    assert "hush" not in json.dumps([stored(delivery), posted], default=str)


@pytest.mark.contract("WH-08")
def test_a_secret_may_be_named_and_is_read_for_each_attempt(
    webhooks: WebhookService, receiver: Receiver, use_keys: Any
) -> None:
    use_keys(1, **ALLOWED, WEBHOOK_SECRET="hooks", WEBHOOK_RETRY_DELAY="1s")
    delivery = webhooks.send(receiver.url, {"a": 1})
    assert webhooks.deliver(delivery.delivery_id) == "pending", "there is no such secret yet"
    assert "hooks" in str(attempts_of(delivery)[0].error)
    SecretService().set_secret("hooks", "one")
    SecretService().set_secret("other", "two")
    with travel(SECOND):
        assert webhooks.deliver(delivery.delivery_id) == "delivered"
    webhooks.deliver(webhooks.send(receiver.url, {"a": 1}, secret_name="other").delivery_id)
    for request, secret in zip(receiver.requests, ("one", "two"), strict=True):
        assert verify_webhook(secret, request.body, request.headers["X-Pikku-Signature"])


def test_what_cannot_be_sent_is_refused_and_not_stored(webhooks: WebhookService, posted: list[Any]) -> None:
    url = "https://hooks.test/"
    for wrong in (
        {"url": "ftp://hooks.test/"},
        {"headers": {"Content-Length": "5"}},
        {"event": "a\nb"},
        {"event": "x" * 300},
        {"retries": -1},
        {"retry_delay": "soon"},
        {"secret": ""},
    ):
        with pytest.raises(WebhookInputError):
            webhooks.send(**{"url": url, "data": {}, **wrong})  # type: ignore[arg-type]
    with pytest.raises(PayloadError):
        webhooks.send(url, {"when": datetime.now(UTC)})
    with pytest.raises(WebhookBlockedError):
        webhooks.send("http://10.0.0.1/", {})
    assert webhooks.list_deliveries() == posted == []


@about_sql
def test_what_a_webhook_costs(webhooks: WebhookService, receiver: Receiver, statements: Any) -> None:
    with statements() as seen:
        delivery = webhooks.send(receiver.url, {})
    assert [text.split()[0] for text in data_statements(seen)] == ["INSERT"]
    with statements() as seen:
        webhooks.deliver(delivery.delivery_id)
    # On PostgreSQL the outcome and its attempt are one statement.
    kinds = [text.split()[0] for text in data_statements(seen)]
    assert kinds[:2] == ["SELECT", "UPDATE"]
    assert len(kinds) <= 4


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("WH-15", "WH-17", "WH-18", "WH-06")
def test_it_is_tried_again_with_growing_delays_until_it_succeeds(
    webhooks: WebhookService, receiver: Receiver, posted: list[Any]
) -> None:
    receiver.answers = [500, 404, 200]
    with frozen_clock() as clock:
        delivery = webhooks.send(receiver.url, {}, retries=2)
        assert webhooks.deliver(delivery.delivery_id) == "pending"
        assert webhooks.deliver(delivery.delivery_id) is None, "not yet"
        clock.advance("1s")
        assert webhooks.deliver(delivery.delivery_id) == "pending"
        clock.advance("1s")
        assert webhooks.deliver(delivery.delivery_id) is None, "the second delay is twice as long"
        clock.advance("1s")
        assert webhooks.deliver(delivery.delivery_id) == "delivered"
    found = [(each.attempt_number, each.status_code, each.response_body) for each in attempts_of(delivery)]
    assert found == [(1, 500, "done"), (2, 404, "done"), (3, 200, None)]
    assert [round(message.get("countdown") or 0) for message in posted] == [0, 1, 2]


@pytest.mark.contract("WH-05")
def test_it_fails_for_good_after_its_last_attempt(
    webhooks: WebhookService, receiver: Receiver, settings: Settings
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "WEBHOOK_RETRIES": 1, "WEBHOOK_RETRY_DELAY": "10s"}
    receiver.answers = [503]
    delivery = webhooks.send(receiver.url, {})
    webhooks.deliver(delivery.delivery_id)
    with travel(9 * SECOND):
        assert webhooks.deliver(delivery.delivery_id) is None
    with travel(10 * SECOND):
        assert webhooks.deliver(delivery.delivery_id) == "failed"
    found = delivery_of(delivery)
    assert (found.attempts, found.delivered_at, found.next_attempt_at) == (2, None, None)


@pytest.mark.parametrize(
    ("answer", "status", "error", "body"),
    [
        ("hang", None, "no answer within 150 ms", None),
        ("drip", None, "no answer within 150 ms", None),
        ("slow", 500, None, "x"),
        ("garbage", None, "BadStatusLine", None),
        ("redirect", 302, "redirects are not followed", None),
        ("huge", 500, None, "ä" * 2_000),
        ("broken", 500, None, "half"),
    ],
)
def test_a_receiver_that_misbehaves_costs_no_more_than_the_timeout(
    webhooks: WebhookService, receiver: Receiver, settings: Settings, answer: str, status: Any, error: Any, body: Any
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "WEBHOOK_TIMEOUT": "150ms"}
    receiver.answers = [answer]
    delivery = webhooks.send(receiver.url, {}, retries=0)
    began = time.monotonic()
    assert webhooks.deliver(delivery.delivery_id) == "failed"
    assert time.monotonic() - began < 1.5
    (tried,) = attempts_of(delivery)
    assert tried.status_code == status
    # Of a slow answer, what came in time.
    assert (tried.response_body or "").startswith(body or "")
    assert len(tried.response_body or "") < 10 or tried.response_body == body
    assert (error or "") in (tried.error or "")
    assert len(receiver.requests) == 1, "and nobody else was asked"
    assert receiver.sent < 10_000_000, "what is too long is not read"


def test_a_receiver_that_is_not_there_is_tried_again(webhooks: WebhookService) -> None:
    with receiving() as receiver:
        url = receiver.url
    delivery = webhooks.send(url, {})
    assert webhooks.deliver(delivery.delivery_id) == "pending"
    assert "refused" in str(attempts_of(delivery)[0].error)
    gone = webhooks.send("http://no-such-host.invalid/", {}, retries=0)
    assert webhooks.deliver(gone.delivery_id) == "failed"
    assert "cannot be looked up" in str(attempts_of(gone)[0].error)


# -- where they may not go ---------------------------------------------------------------------------------------------


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """What names mean, one answer after the other."""
    answers: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host not in answers:
            return real(host, port, *args, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers[host].pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return answers


@pytest.mark.contract("WH-13")
def test_a_name_with_a_private_address_is_refused_without_a_request(
    webhooks: WebhookService, receiver: Receiver, settings: Settings, lookups: Any
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "WEBHOOK_ALLOWED_HOSTS": []}
    lookups["hooks.test"] = [["93.184.216.34", "127.0.0.1"]]
    delivery = webhooks.send(f"http://hooks.test:{receiver.port}/", {})
    assert webhooks.deliver(delivery.delivery_id) == "failed", "it would be refused again and again"
    (tried,) = attempts_of(delivery)
    assert "WEBHOOK_BLOCKED" in str(tried.error)
    assert "hooks.test (127.0.0.1)" in str(tried.error)
    assert receiver.requests == []


def test_a_host_may_be_excepted_by_name(
    webhooks: WebhookService, receiver: Receiver, settings: Settings, lookups: Any
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "WEBHOOK_ALLOWED_HOSTS": ["*.inside.test"]}
    lookups["a.inside.test"] = [["127.0.0.1"]]
    delivery = webhooks.send(f"http://a.inside.test:{receiver.port}/", {})
    assert webhooks.deliver(delivery.delivery_id) == "delivered"


def test_a_name_is_looked_up_once_and_tls_keeps_it(
    webhooks: WebhookService, lookups: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = certified(tmp_path, "hooks.test")
    monkeypatch.setattr(transport, "_tls", lambda: client)
    with receiving(server) as receiver:
        # A second question would be answered with another address (DNS rebinding).
        lookups["hooks.test"] = [["127.0.0.1"], ["127.0.0.99"]]
        delivery = webhooks.send(f"https://hooks.test:{receiver.port}/x", {})
        assert webhooks.deliver(delivery.delivery_id) == "delivered"
        (request,) = receiver.requests
        assert request.headers["Host"] == f"hooks.test:{receiver.port}"
        assert lookups["hooks.test"] == [["127.0.0.99"]]
        lookups["other.test"] = [["127.0.0.1"]]
        other = webhooks.send(f"https://other.test:{receiver.port}/x", {}, retries=0)
        assert webhooks.deliver(other.delivery_id) == "failed"
        assert "certificate" in str(attempts_of(other)[0].error).lower(), "it is in another name"


def certified(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's side of TLS in that name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=str(pem))


# -- what gets lost ----------------------------------------------------------------------------------------------------


def test_a_lost_message_is_found_by_the_relay(webhooks: WebhookService, receiver: Receiver, posted: list[Any]) -> None:
    delivery = webhooks.send(receiver.url, {})
    posted.clear()
    assert webhooks.relay() == 0, "its message may still be under way"
    with travel(MINUTE):
        assert webhooks.relay() == 1
        assert webhooks.relay() == 0, "once, and then after a while"
    with travel(3 * MINUTE):
        assert webhooks.relay() == 1
    assert [message["args"] for message in posted] == [(delivery.delivery_id,)] * 2
    assert webhooks.deliver(delivery.delivery_id) == "delivered"
    with travel(60 * MINUTE):
        assert webhooks.relay() == 0


def test_a_broker_that_is_down_costs_time_only(
    webhooks: WebhookService, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(*args: Any, **options: Any) -> None:
        raise OperationalError("no route")

    monkeypatch.setattr(tasks.deliver, "apply_async", down)
    delivery = webhooks.send(receiver.url, {})
    assert "wait for the relay" in caplog.text
    with travel(MINUTE):
        assert webhooks.relay() == 0
    assert webhooks.deliver(delivery.delivery_id) == "delivered"


class Killed(BaseException):
    """As if the process were gone."""


def test_an_attempt_whose_worker_is_gone_is_recorded_as_lost_and_made_again(
    webhooks: WebhookService, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, posted: list[Any]
) -> None:
    delivery = webhooks.send(receiver.url, {}, retry_delay="1s")
    with monkeypatch.context() as patch:

        def killed(*args: Any, **options: Any) -> None:
            raise Killed

        patch.setattr(transport, "post", killed)
        with pytest.raises(Killed):
            webhooks.deliver(delivery.delivery_id)
    assert webhooks.deliver(delivery.delivery_id) is None, "it is taken"
    token = stored(delivery)["claim_token"]
    posted.clear()
    with travel(2 * MINUTE):
        assert webhooks.relay() == 0
        (lost,) = attempts_of(delivery)
        assert "WORKER_LOST" in str(lost.error)
        late = {"attempts": 1, "status": "delivered", "updated_at": datetime.now(UTC)}
        row = {**stored(delivery), "attempts": 0}
        assert not attempts._recorded(webhooks.using, row, token, attempts.Outcome(status_code=200), late)
    with travel(2 * MINUTE + 2 * SECOND):
        assert webhooks.relay() == 1
        assert webhooks.deliver(delivery.delivery_id) == "delivered"
    assert [each.attempt_number for each in attempts_of(delivery)] == [1, 2]


def test_a_message_that_comes_after_the_claim_ran_out_takes_it_over(
    webhooks: WebhookService, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = webhooks.send(receiver.url, {}, retry_delay=0)
    with monkeypatch.context() as patch:

        def killed(*args: Any, **options: Any) -> None:
            raise Killed

        patch.setattr(transport, "post", killed)
        with pytest.raises(Killed):
            webhooks.deliver(delivery.delivery_id)
    with travel(2 * MINUTE):
        assert webhooks.deliver(delivery.delivery_id) == "delivered"
    assert [each.status_code for each in attempts_of(delivery)] == [None, 200]


@pytest.mark.parametrize("way", WAYS)
def test_whichever_statement_fails_the_books_are_right_in_the_end(
    webhooks: WebhookService, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    posts: list[str] = []

    def post(url: str, *args: Any, **options: Any) -> transport.Answer:
        posts.append(url)
        return transport.Answer(200, "")

    monkeypatch.setattr(transport, "post", post)
    if connection.vendor == "mongodb":
        monkeypatch.setattr(mongodb, "GRACE", timedelta(0))
    for number in itertools.count(1):
        delivery = webhooks.send(f"https://hooks.test/{number}", {}, retry_delay=0)
        with failing(number, way) as failure:
            webhooks.deliver(delivery.delivery_id)
        for minutes in (2, 4, 6):
            with travel(minutes * MINUTE):
                webhooks.relay()
                webhooks.deliver(delivery.delivery_id)
        found, tries = delivery_of(delivery), attempts_of(delivery)
        assert found.status == "delivered"
        assert [each.attempt_number for each in tries] == list(range(1, found.attempts + 1))
        assert [each.status_code for each in tries] == [None] * (found.attempts - 1) + [200]
        assert 1 <= posts.count(delivery.url) <= found.attempts <= 2, "each is in the books, or was lost"
        if failure.reached is None:
            assert number > 3
            return


def test_without_a_broker_it_is_attempted_at_once_and_the_relay_goes_on(
    webhooks: WebhookService, receiver: Receiver, settings: Settings
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DISPATCHER": None}
    receiver.answers = [500, 200]
    delivery = webhooks.send(receiver.url, {})
    assert (delivery_of(delivery).status, len(receiver.requests)) == ("pending", 1)
    with travel(SECOND):
        out = StringIO()
        call_command("relay_webhooks", "--once", stdout=out)
    assert out.getvalue() == "1 webhooks announced\n"
    assert delivery_of(delivery).status == "delivered"


def test_the_tasks_do_what_the_service_does(webhooks: WebhookService, receiver: Receiver) -> None:
    delivery = webhooks.send(receiver.url, {})
    tasks.relay.apply(throw=True)
    tasks.deliver.apply((delivery.delivery_id,), throw=True)
    tasks.deliver.apply(("no such delivery",), throw=True)
    assert delivery_of(delivery).status == "delivered"


# -- afterwards --------------------------------------------------------------------------------------------------------


@pytest.mark.contract("WH-03")
def test_deliveries_are_listed_by_organisation_and_page(webhooks: WebhookService, ticking: None) -> None:
    sent = [webhooks.send("https://hooks.test/", {}, organization_id=each) for each in ("a", "b", "a", None, "a")]
    assert webhooks.list_deliveries() == sent[::-1]
    of_a = [sent[4], sent[2], sent[0]]
    assert webhooks.list_deliveries(organization_id="a") == of_a
    first = webhooks.list_deliveries(organization_id="a", limit=2)
    last = first[-1]
    assert first == of_a[:2]
    assert webhooks.list_deliveries(organization_id="a", before=(last.created_at, last.delivery_id)) == of_a[2:]
    assert webhooks.list_deliveries(status="failed") == []
    assert webhooks.get_delivery("unknown") is None


def test_what_ended_can_be_replayed(webhooks: WebhookService, receiver: Receiver, audited: list[Any]) -> None:
    receiver.answers = [500, 500, 200]
    delivery = webhooks.send(receiver.url, {}, retries=1, retry_delay=0)
    assert webhooks.replay(delivery.delivery_id).status == "pending", "it is under way, and left alone"
    assert [webhooks.deliver(delivery.delivery_id) for _ in range(3)] == ["pending", "failed", None]
    out = StringIO()
    call_command("replay_webhook", delivery.delivery_id, "--by", "ada", stdout=out)
    assert out.getvalue() == f"{delivery.delivery_id}: pending after 2 attempts\n"
    assert delivery_of(delivery).max_attempts == 4
    assert webhooks.deliver(delivery.delivery_id) == "delivered"
    assert [each.attempt_number for each in attempts_of(delivery)] == [1, 2, 3]
    (event,) = audited
    assert (event.type, event.actor.user_id, event.metadata["status"]) == ("webhook.replayed", "ada", "failed")
    with pytest.raises(WebhookNotFoundError):
        webhooks.replay("unknown")
    with pytest.raises(CommandError, match="unknown"):
        call_command("replay_webhook", "unknown")


def test_what_waits_can_be_given_up(webhooks: WebhookService, receiver: Receiver, audited: list[Any]) -> None:
    receiver.answers = [500]
    delivery = webhooks.send(receiver.url, {}, retries=3, retry_delay="1h")
    assert webhooks.deliver(delivery.delivery_id) == "pending"

    under_way = WebhookDelivery.objects.filter(pk=delivery.delivery_id)
    under_way.update(claim_token="t")
    assert webhooks.give_up(delivery.delivery_id).status == "pending", "an attempt is under way, and left alone"
    under_way.update(claim_token=None)

    given_up = webhooks.give_up(delivery.delivery_id, by="ada", reason="moved")
    assert (given_up.status, given_up.attempts, given_up.next_attempt_at) == ("failed", 1, None)
    assert webhooks.give_up(delivery.delivery_id, by="eve").status == "failed", "it has ended"
    with travel(timedelta(hours=2)):
        assert (webhooks.relay(), webhooks.deliver(delivery.delivery_id)) == (0, None)
    assert len(receiver.requests) == 1
    (event,) = audited
    assert (event.type, event.actor.user_id) == ("webhook.given_up", "ada")
    assert event.metadata == {"deliveryId": delivery.delivery_id, "attempts": 1, "reason": "moved"}
    assert webhooks.replay(delivery.delivery_id).status == "pending", "and it may be sent again after all"
    with pytest.raises(WebhookNotFoundError):
        webhooks.give_up("unknown")


def test_old_ones_are_pruned(webhooks: WebhookService, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [webhooks.send(receiver.url, {}) for _ in range(3)]
    for delivery in sent[:2]:
        webhooks.deliver(delivery.delivery_id)
    with travel(timedelta(days=2)):
        for options, text in ((["--dry-run"], "2 webhooks would be deleted\n"), ([], "2 webhooks deleted\n")):
            out = StringIO()
            call_command("prune_webhooks", "--older-than", "1d", *options, stdout=out)
            assert out.getvalue() == text
    assert webhooks.list_deliveries() == sent[2:]
    with pytest.raises(CommandError):
        call_command("prune_webhooks", "--older-than", "some days")


async def _sent(webhooks: WebhookService) -> str:
    delivery = await webhooks.asend("https://hooks.test/", {})
    found = await webhooks.aget_delivery(delivery.delivery_id)
    return str(found.delivery.status)


def test_it_has_async_twins(webhooks: WebhookService) -> None:
    assert async_to_sync(_sent)(webhooks) == "pending"
