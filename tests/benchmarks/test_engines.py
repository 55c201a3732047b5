"""The comparison of databases takes turns, and shows every database under its own name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import engines


def test_another_one_begins_each_time_and_figures_find_back_to_their_places() -> None:
    children: Any = ["a", "b", "c"]
    turned: list[Any] = [engines._turned(children, number) for number in range(4)]
    assert [order[0] for order in turned] == ["a", "b", "c", "a"]
    assert [engines._unturned(order, number) for number, order in enumerate(turned)] == [children] * 4


def test_a_database_is_measured_and_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    url = f"sqlite:///{tmp_path}/bench.sqlite3"
    monkeypatch.setattr(sys, "argv", ["engines", url, url, "--rounds", "1"])

    engines.main()

    title, line, *rows = capsys.readouterr().out.splitlines()
    assert (title, line) == ("| milliseconds | sqlite | sqlite |", "| --- | ---: | ---: |")
    assert [row.split(" | ")[0] for row in rows[:5]] == [f"| {meaning}" for meaning in engines.MEASURED.values()]
    assert "medians of 1 rounds" in rows[-1]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".sqlite3"] == []
