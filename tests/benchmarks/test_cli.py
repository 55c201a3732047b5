"""The command line, in a process of its own: it sets Django up with settings of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = {"BENCH_POSTGRES_URL": "postgres://me:hidden@127.0.0.1:1/none", "BENCH_REDIS_URL": "redis://127.0.0.1:1/0"}


def environment(**more: str) -> dict[str, str]:
    """Without servers, and without what the tests' own Django project reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PIKKU_"))}
    return {**kept, **NOWHERE, **more}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m benchmarks` without servers."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "--rounds", "1", *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_needs_a_missing_server_is_named_and_the_rest_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    done = bench("raw-sqlite3", "raw-psycopg", "celery-redis", "pikku-inline-sqlite", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "| raw commits, sqlite3" in done.stdout
    assert "| Pikku Storage inline, SQLite" in done.stdout
    missing = [line for line in done.stdout.splitlines() if line.startswith("not measured: ")]
    assert len(missing) == 2
    assert "raw commits, psycopg: PostgreSQL does not answer at 127.0.0.1:1" in missing[0]
    assert "Celery chain/chord, Redis results (not durable): Redis does not answer at 127.0.0.1:1" in missing[1]
    assert "hidden" not in done.stdout + done.stderr
    systems = {system["name"]: system for system in json.loads(file.read_text())["systems"]}
    assert set(systems) == {"raw-sqlite3", "pikku-inline-sqlite"}
    per_step = systems["pikku-inline-sqlite"]["per_step"]
    # A slow round renews a lease besides.
    assert per_step["statements"] < 4.5
    assert per_step["transactions"] <= 2


def test_it_fails_only_if_nothing_could_be_measured() -> None:
    done = bench("raw-psycopg")
    assert done.returncode == 1
    assert "not measured: raw commits, psycopg" in done.stdout


def test_an_unknown_system_is_refused_with_the_names_of_all() -> None:
    done = bench("temporal")
    assert done.returncode == 2
    assert "there is no system 'temporal'" in done.stderr
    assert "dbos-direct" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_impatient_interrupt_still_lets_everything_be_removed(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "--rounds", "100000", "raw-sqlite3"],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("round 2"):
                break
        assert list(tmp_path.iterdir())
        for _ in range(3):
            process.send_signal(number)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said.rstrip().endswith("stopped")
    assert list(tmp_path.iterdir()) == []
