"""Which pages may open a WebSocket with the cookie of our session."""

import pytest
from pytest_django.fixtures import Settings

from pikku_storage.channels.sessions import origin_is_ours


@pytest.mark.parametrize(
    ("host", "origin", "ours"),
    [
        ("shop.example", "", True),
        ("shop.example", "https://shop.example", True),
        ("shop.example:8443", "https://shop.example:8443", True),
        ("shop.example", "https://app.partner.example", True),
        ("shop.example", "http://app.partner.example", False),
        ("shop.example", "https://partner.example.evil.example", False),
        ("shop.example", "null", False),
        ("evil.example", "https://evil.example", False),
        ("", "", False),
    ],
)
def test_whose_page_it_is(settings: Settings, host: str, origin: str, ours: bool) -> None:
    settings.ALLOWED_HOSTS = ["shop.example"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://*.partner.example"]
    headers = [(b"host", host.encode()), *([(b"origin", origin.encode())] if origin else [])]
    assert origin_is_ours({"headers": headers}) is ours
