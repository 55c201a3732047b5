"""A real Chromium, logged in, that reports every complaint of the pages it shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images"
IS_UNFOLD = apps.is_installed("unfold")
"""Under django-unfold, whose own scripts need more than a strict policy allows, and whose colours are its own."""
WIDTHS = {"wide": (1280, 900), "narrow": (390, 844)}


def _missing(reason: str) -> None:
    if os.environ.get("PIKKU_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{reason}, and PIKKU_REQUIRE_BROWSER=1 asks for it", pytrace=False)
    pytest.skip(f"needs Chromium: {reason}")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser; without one the tests are skipped, or fail if PIKKU_REQUIRE_BROWSER=1."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        _missing("no chromium on the PATH")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    # Playwright keeps an event loop in this thread, and the tests write rows beside it. It ends with the module, since
    # async code of other tests could not run beside that loop.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
    else:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@pytest.fixture
def viewer(chromium: Any, live_server: Any, settings: Any) -> Iterator[Callable[..., Any]]:
    """Makes pages: `viewer(width="narrow", scheme="dark")`. At the end none of them may have complained."""
    if not IS_UNFOLD:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.browser.csp.strict_csp"]
    user = User.objects.create_superuser("ops", password="pass")
    client = Client()
    client.force_login(user)
    cookie = client.cookies["sessionid"].value
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_page(
        width: str = "wide", scheme: str = "light", *, javascript: bool = True, motion: str = "reduce"
    ) -> Any:
        across, down = WIDTHS[width]
        context = chromium.new_context(
            viewport={"width": across, "height": down},
            color_scheme=scheme,
            reduced_motion=motion,
            java_script_enabled=javascript,
            base_url=live_server.url,
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.add_cookies([{"name": "sessionid", "value": cookie, "url": live_server.url}])
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        contexts.append(context)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def picture(tmp_path: Path) -> Callable[..., Path]:
    """Takes a picture into the test's folder; one for the documentation goes there with PIKKU_WRITE_PICTURES=1."""
    is_writing = os.environ.get("PIKKU_WRITE_PICTURES") == "1"

    def take(page: Any, name: str, *, documented: bool = False, **options: Any) -> Path:
        folder = PICTURES if documented and is_writing else tmp_path
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.png"
        page.screenshot(path=path, **options)
        return path

    return take
