"""The German translation has every text, and the compiled files are made of it."""

from __future__ import annotations

import gettext
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = ("console", "pikku_storage")
CATALOGUE = Path("locale/de/LC_MESSAGES/django.po")
PROGRAMS = ("xgettext", "msgmerge", "msgattrib", "msgfmt", "msguniq")


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing and os.environ.get("PIKKU_REQUIRE_PROGRAMS") == "1":
        pytest.fail(f"PIKKU_REQUIRE_PROGRAMS=1 asks for GNU gettext, and {missing[0]} is missing", pytrace=False)
    if missing:
        pytest.skip(f"needs GNU gettext: no {missing[0]}")


def entries(catalogue: Path, kind: str) -> str:
    """The entries of that kind, as text; empty without one."""
    answer = subprocess.run(["msgattrib", f"--{kind}", catalogue], capture_output=True, text=True, check=True)  # noqa: S607
    return answer.stdout


@pytest.mark.parametrize("app", APPS)
def test_every_text_is_translated(app: str, tmp_path: Path) -> None:
    copy = tmp_path / app
    shutil.copytree(ROOT / app, copy, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-P", "-m", "django", "makemessages", "--locale", "de", "--no-wrap"]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    for kind in ("untranslated", "only-fuzzy", "only-obsolete"):
        assert entries(copy / CATALOGUE, kind) == "", f"run `make messages`, and see to what is {kind}"


@pytest.mark.parametrize("app", APPS)
def test_what_is_compiled_is_what_is_written(app: str, tmp_path: Path) -> None:
    written, compiled = ROOT / app / CATALOGUE, (ROOT / app / CATALOGUE).with_suffix(".mo")
    fresh = tmp_path / "django.mo"
    # The check finds placeholders that a translation lacks.
    subprocess.run(["msgfmt", "--check", "-o", fresh, written], check=True)  # noqa: S607
    with compiled.open("rb") as have, fresh.open("rb") as want:
        assert gettext.GNUTranslations(have)._catalog == gettext.GNUTranslations(want)._catalog  # type: ignore[attr-defined]
