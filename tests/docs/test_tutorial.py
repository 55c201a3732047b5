"""The tutorial, done literally: its commands, its files and its shell sessions, in an empty folder."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, ROOT, Block, blocks_of

PAGE = DOCS / "tutorial" / "first-workflow.md"
ANYTHING = "…"

# Runs the shell sessions of the page as one session of `manage.py shell`, and compares what they print.
SESSION = """
import doctest, sys, django
django.setup()
test = doctest.DocTestParser().get_doctest(sys.stdin.read(), {}, "tutorial", None, 0)
runner = doctest.DocTestRunner()
runner.run(test)
sys.exit(bool(runner.failures))
"""


@pytest.fixture
def env() -> dict[str, str]:
    """Of a shell whose environment has this package, and nothing that points at the example project."""
    kept = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "PYTHONPATH"}}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "PYTHONPATH": f".{os.pathsep}{ROOT}", "DJANGO_SETTINGS_MODULE": "shop.settings"}


def test_the_tutorial_works(tmp_path: Path, env: dict[str, str]) -> None:
    blocks = [block for block in blocks_of(PAGE) if not block.not_run]
    sessions = [block for block in blocks if block.language == "pycon"]
    for block in blocks:
        if block.language == "console":
            _run_commands(block, tmp_path, env)
        elif block.language == "python":
            _write(block, tmp_path)
        elif block is sessions[-1]:
            _run_sessions(sessions, tmp_path, env)


def _write(block: Block, project: Path) -> None:
    name = block.file or block.append
    assert name, f"line {block.line}: in which file?"
    with (project / name).open("a" if block.append else "w", encoding="utf-8") as file:
        file.write(block.text)


def _run_commands(block: Block, project: Path, env: dict[str, str]) -> None:
    for step in block.text.split("$ ")[1:]:
        command, _, shown = step.partition("\n")
        outside = {**env, "DJANGO_SETTINGS_MODULE": ""} if command.startswith("django-admin") else env
        ended = subprocess.run(command, shell=True, cwd=project, env=outside, capture_output=True, text=True)  # noqa: S602
        assert ended.returncode == 0, ended.stderr
        pattern = ".*".join(re.escape(part.strip("\n")) for part in shown.split(ANYTHING))
        assert re.search(pattern, ended.stdout, re.DOTALL), ended.stdout


def _run_sessions(sessions: list[Block], project: Path, env: dict[str, str]) -> None:
    text = "\n".join(block.text for block in sessions)
    assert doctest.DocTestParser().get_examples(text)
    command = [sys.executable, "-c", SESSION]
    ended = subprocess.run(command, input=text, cwd=project, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
