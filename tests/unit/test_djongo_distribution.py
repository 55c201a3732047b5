"""The module `djongo` comes from one distribution, or the project does not start."""

import subprocess
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured

from pikku_storage.db.backends.djongo import distribution


@pytest.mark.parametrize("found", [["djongo-certego"], ["djongo"], ["djongo-certego", "djongo-certego"]])
def test_one_will_do(monkeypatch: pytest.MonkeyPatch, found: list[str]) -> None:
    monkeypatch.setattr(distribution, "packages_distributions", lambda: {"djongo": found, "django": ["Django"]})
    distribution.require_one()


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"djongo": ["djongo-certego", "djongo"]}, "by djongo and by djongo-certego, over each other"),
        ({"django": ["Django"]}, r"install \"django-pikku-storage\[djongo\]\""),
    ],
    ids=["two", "none"],
)
def test_any_other_number_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, list[str]], text: str
) -> None:
    monkeypatch.setattr(distribution, "packages_distributions", lambda: found)
    with pytest.raises(ImproperlyConfigured, match=text):
        distribution.require_one()


def test_nothing_imports_it_that_is_not_told_to() -> None:
    """Also where it is installed: it is under the AGPL-3.0."""
    program = (
        "import sys, django; django.setup()\n"
        "from django.core.management import call_command; call_command('check')\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('djongo', 'sqlparse.sql') "
        "or name.startswith('pikku_storage.db.backends')])"
    )
    env = {"DJANGO_SETTINGS_MODULE": "example_project.settings", "DATABASE_URL": "sqlite:///:memory:"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
