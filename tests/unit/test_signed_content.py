"""Signed addresses: what is signed, in which order it is refused, and that the view gives nothing else away."""

import os
import time
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt as pyjwt
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import Client, RequestFactory, override_settings
from django.urls import path
from django.utils.http import http_date
from pytest_django import Settings

from pikku_storage import content as served
from pikku_storage.content import serve_signed, signed_url
from pikku_storage.crypto import content, jwt
from pikku_storage.exceptions import InvalidTokenError, SignedUrlError, WeakKeyMaterialError
from tests.data.vectors import vectors

SECRETS = {"new": "n" * 20 + "0123456789ab", "old": "o" * 20 + "0123456789ab"}
OTHERS = {"new": "x" * 20 + "0123456789ab"}
NOW = int(time.time() * 1000)
urlpatterns: list[Any] = []


@pytest.mark.contract("LC-01")
@pytest.mark.parametrize("vector", vectors("signed-content-path"), ids=lambda vector: vector["input"])
def test_the_path_that_is_signed(vector: dict[str, str]) -> None:
    assert content.path_of(vector["input"]) == vector["path"]


@pytest.mark.contract("LC-01")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://h:8000/a%2Fb", "/a/b"),
        ("/a/%2e%2E/b/./c/..", "/b/"),
        ("/a%zz é", "/a%zz%20%C3%A9"),
        ("/a%ff", "/a%ff"),
        ("/a%2525", "/a%25"),
        ("/../../x", "/x"),
        ("/a\\..\\b", "/b"),
        ("https://h", "/"),
    ],
)
def test_paths_are_those_of_a_browser(url: str, expected: str) -> None:
    assert content.path_of(url) == expected


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def signed(secrets: dict[str, str] = SECRETS, **given: Any) -> dict[str, str]:
    times = {"signed_at": NOW - 1000, "expires_at": NOW + 60_000, **given}
    return query_of(content.sign(secrets, "/files/a.txt", **times))


@pytest.mark.contract("LC-01")
def test_an_address_holds_for_its_path_and_time() -> None:
    url = content.sign(SECRETS, "https://h/files/a%20b?x=1", signed_at=NOW, expires_at=NOW + 1500, not_before=NOW + 5)
    query = query_of(url)
    assert url.startswith(f"https://h/files/a%20b?x=1&signedAt={NOW}&expiresAt={NOW + 1500}&notBefore={NOW + 5}&sig")
    claims = jwt.decode(SECRETS, query["signature"])
    assert claims["exp"] - claims["iat"] == 1
    assert {**claims, "iat": 0, "exp": 0} == {
        "signedAt": NOW,
        "expiresAt": NOW + 1500,
        "notBefore": NOW + 5,
        "path": "/files/a b",
        "iat": 0,
        "exp": 0,
    }
    assert pyjwt.get_unverified_header(query["signature"]) == {"alg": "HS256", "kid": "new", "typ": "JWT"}
    assert content.verify(SECRETS, "/files/a b", query, now=NOW + 5) == NOW + 1500
    old_first = {"old": SECRETS["old"], "new": SECRETS["new"]}
    assert content.verify(old_first, "/files/a b", query, now=NOW + 1499) == NOW + 1500


@pytest.mark.contract("LC-01")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"signedAt": None, "signature": None}, "Signed URL required"),
        ({"expiresAt": ""}, "Signed URL required"),
        ({"signedAt": "soon"}, "Invalid signed URL"),
        ({"notBefore": "1e3"}, "Invalid signed URL"),
        ({"expiresAt": "٣"}, "Invalid signed URL"),
        ({"expiresAt": str(NOW)}, "Signed URL expired"),
        ({"signedAt": str(NOW + 1)}, "Signed URL expired"),
        ({"notBefore": str(NOW + 1)}, "Signed URL expired"),
        ({"signature": None}, "Signed URL signature required"),
        ({"signature": "a.b.c"}, "Invalid signed URL"),
        ({"expiresAt": str(NOW + 90_000)}, "Invalid signed URL"),
        ({"signedAt": str(NOW - 2000)}, "Invalid signed URL"),
        ({"notBefore": str(NOW - 2000)}, "Invalid signed URL"),
        ({"path": "/files/b.txt"}, "Invalid signed URL"),
        ({"secrets": OTHERS}, "Invalid signed URL"),
        ({"secrets": {"other": SECRETS["new"]}}, "Invalid signed URL"),
        ({"secrets": {}}, "Invalid signed URL"),
    ],
    # Times differ from process to process.
    ids=count(),
)
def test_what_was_changed_is_refused_with_the_reason(change: dict[str, Any], text: str) -> None:
    change = dict(change)
    secrets, where = change.pop("secrets", SECRETS), change.pop("path", "/files/a.txt")
    query = {name: value for name, value in {**signed(), **change}.items() if value is not None}
    with pytest.raises(SignedUrlError, match=f"^{text}$"):
        content.verify(secrets, where, query, now=NOW)


def test_tokens_of_other_kinds_are_refused() -> None:
    claims = {"a": 1, "exp": 2 * NOW}
    forged = [
        pyjwt.encode(claims, key="", algorithm="none"),
        pyjwt.encode(claims, SECRETS["new"] * 2, algorithm="HS512", headers={"kid": "new"}),
        pyjwt.encode(claims, SECRETS["old"], headers={"kid": "new"}),
        pyjwt.encode(claims, SECRETS["new"], headers={"kid": "unknown"}),
        pyjwt.encode({"a": 1}, SECRETS["new"]),
        pyjwt.encode({**claims, "aud": "pikku-remote"}, SECRETS["new"]),
        pyjwt.encode({**claims, "exp": 1}, SECRETS["new"]),
        "",
    ]
    for token in forged:
        with pytest.raises(InvalidTokenError) as caught:
            jwt.decode(SECRETS, token)
        assert not any(secret in str(caught.value) for secret in SECRETS.values())
    assert jwt.decode(SECRETS, pyjwt.encode(claims, SECRETS["new"]))["a"] == 1, "without an id, the first one"
    with pytest.raises(WeakKeyMaterialError):
        jwt.encode({"a": "short"}, {}, lifetime=1)
    with pytest.raises(WeakKeyMaterialError):
        jwt.decode({"new": "short"}, pyjwt.encode(claims, SECRETS["new"]))


# -- the view ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, settings: Settings) -> Path:
    settings.PIKKU_STORAGE = {"JWT_SECRETS": SECRETS}
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    (folder / "a b.txt").write_text("hello")
    (folder / "page.html").write_text("<script>")
    (tmp_path / "outside.txt").write_text("not yours")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "inner.txt").symlink_to(folder / "a b.txt")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return folder


def get(folder: Path, key: str, url: str | None = None, **headers: str) -> HttpResponseBase:
    request: HttpRequest = RequestFactory().get(url or signed_url(f"/files/{key}"), headers=headers)
    response: HttpResponseBase = serve_signed(request, key, folder)
    return response


@pytest.mark.django_db
def test_a_file_is_served_until_it_expires(folder: Path) -> None:
    response: Any = get(folder, "a b.txt", signed_url("/files/a%20b.txt", "1min"))
    assert (response.status_code, b"".join(response), response["Content-Type"]) == (200, b"hello", "text/plain")
    response.close()
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Cache-Control"] in {f"private, max-age={seconds}" for seconds in (58, 59, 60)}
    assert not response.has_header("Content-Security-Policy")
    html = get(folder, "page.html")
    assert html["Content-Security-Policy"] == "sandbox"
    html.close()
    unchanged = http_date((folder / "a b.txt").stat().st_mtime)
    assert get(folder, "a b.txt", signed_url("/files/a%20b.txt"), if_modified_since=unchanged).status_code == 304


def test_whatever_is_refused_is_refused_alike(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = signed_url("/files/a%20b.txt")
    answers = [
        get(folder, "a b.txt", "/files/a%20b.txt"),
        get(folder, "a b.txt", good.replace("a%20b", "page")),
        get(folder, "a b.txt", f"{good}x"),
        get(folder, "a b.txt", f"{good}&signedAt=1"),
        *[
            get(folder, key)
            for key in (
                "missing.txt",
                "sub",
                "sub/",
                "link.txt",
                "inner.txt",
                "up/outside.txt",
                "pipe",
                "x\x00y",
                "n" * 5000,
            )
        ],
    ]
    for key in ("../outside.txt", "/etc/passwd", "sub/../page.html", "sub//page.html", "./page.html"):
        # The address is signed as it is asked for, so that only the file is wrong.
        request = RequestFactory().get("/x")
        request.path = f"/files/{key}"
        monkeypatch.setattr(content, "path_of", lambda url: url)
        request.GET = RequestFactory().get(signed_url(request.path)).GET
        answers.append(serve_signed(request, key, folder))
    monkeypatch.setattr(served, "_now", lambda: NOW + 10**9)
    answers.append(get(folder, "a b.txt", good))
    for answer in answers:
        assert (answer.status_code, answer.content, answer["Cache-Control"]) == (403, b"Forbidden", "no-store")  # type: ignore[attr-defined]


@pytest.mark.django_db
def test_the_view_in_an_urlconf(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "urlpatterns", [path("files/<path:key>", serve_signed, {"root": folder})])
    with override_settings(ROOT_URLCONF=__name__):
        url = signed_url("/files/page.html")
        head: Any = Client().head(url)
        assert (head.status_code, head["Content-Length"]) == (200, "8")
        head.close()
        assert Client().put(url).status_code == 405
        assert Client().get("/files/page.html").status_code == 403
        assert Client().get(f"/files/../{url.removeprefix('/')}").status_code != 200


@pytest.mark.contract("LC-01")
def test_nothing_is_signed_without_a_secret(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {}
    with pytest.raises(ImproperlyConfigured, match="JWT_SECRETS"):
        signed_url("/files/a.txt")
