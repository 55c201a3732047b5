"""The German translation has every text, and the compiled files are made of it."""

from __future__ import annotations

import ast
import gettext
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps as django_apps
from django.utils.translation import override

ROOT = Path(__file__).resolve().parents[2]
APPS = ("console", *sorted(str(each.parent.relative_to(ROOT)) for each in ROOT.glob("pikku_storage/*/apps.py")))
"""Each with a catalogue of its own: Django reads those of the apps that are installed, and of nothing around them."""
CATALOGUE = Path("locale/de/LC_MESSAGES/django.po")
PROGRAMS = ("xgettext", "msgmerge", "msgattrib", "msgfmt", "msguniq")
MARKS = ("_", "gettext", "gettext_lazy", "ngettext", "ngettext_lazy", "pgettext", "pgettext_lazy", "npgettext_lazy")


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


def texts_in_code(app: str) -> Iterator[tuple[str, str]]:
    """Each text that code marks to be translated, and where."""
    for source in sorted((ROOT / app).rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS:
                argument = node.args["pgettext" in node.func.id]
                assert isinstance(argument, ast.Constant), f"{source}:{node.lineno} marks what is made while it runs"
                yield str(argument.value), f"{source}:{node.lineno}"


@pytest.mark.parametrize("app", APPS)
def test_no_text_of_the_code_is_missed(app: str) -> None:
    """`makemessages` does not see all of what is written inside of an f-string."""
    with (ROOT / app / CATALOGUE).with_suffix(".mo").open("rb") as compiled:
        keys = gettext.GNUTranslations(compiled)._catalog  # type: ignore[attr-defined]
    # A text with a plural is kept with a number, one with a context after it.
    listed = {(key[0] if isinstance(key, tuple) else key).rpartition("\x04")[2] for key in keys}
    missed = [f"{place}: {text}" for text, place in texts_in_code(app) if text not in listed]
    assert missed == []


def test_each_app_speaks_german_itself() -> None:
    models = [model for model in django_apps.get_models() if model.__module__.startswith("pikku_storage.")]
    names = {model._meta.label_lower: str(model._meta.verbose_name_plural) for model in models}
    with override("de"):
        german = {model._meta.label_lower: str(model._meta.verbose_name_plural) for model in models}
    spoken = {label.partition(".")[0] for label, name in german.items() if name != names[label]}
    assert spoken == {label.partition(".")[0] for label in names}


@pytest.mark.parametrize("app", APPS)
def test_what_is_compiled_is_what_is_written(app: str, tmp_path: Path) -> None:
    written, compiled = ROOT / app / CATALOGUE, (ROOT / app / CATALOGUE).with_suffix(".mo")
    fresh = tmp_path / "django.mo"
    # The check finds placeholders that a translation lacks.
    subprocess.run(["msgfmt", "--check", "-o", fresh, written], check=True)  # noqa: S607
    with compiled.open("rb") as have, fresh.open("rb") as want:
        assert gettext.GNUTranslations(have)._catalog == gettext.GNUTranslations(want)._catalog  # type: ignore[attr-defined]
