"""What may be sent to, and signatures."""

from ipaddress import ip_address
from typing import Any

import pytest
from pytest_django import Settings

from pikku_storage.exceptions import WebhookBlockedError, WebhookInputError
from pikku_storage.secrets.values import SecretValue
from pikku_storage.webhooks import sign_webhook, verify_webhook
from pikku_storage.webhooks.addresses import check_address, is_public
from pikku_storage.webhooks.inputs import headers_of, url_of
from tests.data.vectors import vectors


@pytest.mark.parametrize(
    "address",
    """127.0.0.1 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 100.100.100.200 198.18.0.1 192.0.0.1
    224.0.0.1 240.0.0.1 255.255.255.255 :: ::1 fe80::1 fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1
    ::7f00:1 64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1:: 2001:0:1::1 100::1 2001:db8::1""".split(),
)
def test_addresses_that_are_not_public(address: str, settings: Settings) -> None:
    settings.PIKKU_STORAGE = {}
    with pytest.raises(WebhookBlockedError, match="not public"):
        check_address("hooks.test", ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_addresses_that_are_public(address: str, settings: Settings) -> None:
    settings.PIKKU_STORAGE = {}
    check_address("hooks.test", ip_address(address))


def test_networks_may_be_excepted(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"WEBHOOK_ALLOWED_HOSTS": ["hooks.test", "10.1.0.0/16", "fd00::/8"]}
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        check_address("any", ip_address(address))
        assert not is_public(ip_address(address)) or address.startswith("::ffff")
    with pytest.raises(WebhookBlockedError):
        check_address("any", ip_address("10.2.0.1"))


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://a.test/", "//a.test/", "https://", "https:///x", "https://user:hush@a.test/", "https://a.test:x/"),
        *("https://a.test/ b", "https://a.test\\@b.test/", "https://a.test/\n", "x" * 2_001, "https://[::1", 7),
        *("https://a..test/",),
    ],
)
def test_urls_that_are_refused(url: Any) -> None:
    with pytest.raises(WebhookInputError) as refused:
        url_of(url)
    assert "hush" not in str(refused.value)


def test_urls_that_are_taken(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {}
    assert url_of("https://a.test:8443/x?y=1") == "https://a.test:8443/x?y=1"
    assert url_of("https://bücher.test:81/x") == "https://xn--bcher-kva.test:81/x"
    for blocked in ("http://127.0.0.1/", "http://[::ffff:10.0.0.1]:80/", "http://169.254.169.254/latest"):
        with pytest.raises(WebhookBlockedError):
            url_of(blocked)


@pytest.mark.parametrize("headers", [{"Host": "x"}, {"a b": "x"}, {"X": "a\r\nY: b"}, {"X": 1}, {1: "x"}, {"X": "€"}])
def test_headers_that_are_refused(headers: Any) -> None:
    with pytest.raises(WebhookInputError):
        headers_of(headers)


@pytest.mark.contract("WH-11")
def test_signatures_are_those_of_the_typescript_packages() -> None:
    for vector in vectors("webhook-signature"):
        secret, body, header = vector["secret"], vector["body"], vector["header"]
        assert sign_webhook(secret, body) == header
        assert sign_webhook(SecretValue(secret), body.encode()) == header
        assert verify_webhook(secret, body, header)
        other = f"{header[:-1]}{'0' if header[-1] != '0' else '1'}"
        for wrong in (None, "", header[:-1], header.upper(), "sha256=ä", other):
            assert not verify_webhook(secret, body, wrong)
        assert not verify_webhook(f"{secret}x", body, header)
        assert not verify_webhook(secret, f"{body} ", header)
