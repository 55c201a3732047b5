"""The table and its ratios, from figures that are given."""

import json

import pytest

from benchmarks import report
from benchmarks.comparison import Comparison
from benchmarks.environment import Environment
from benchmarks.runner import Outcome, Result
from benchmarks.scenarios import BURST, CHAIN_1, CHAIN_100, COMMITS
from benchmarks.statements import Count
from benchmarks.systems import ALL, BY_NAME


@pytest.fixture
def outcome() -> Outcome:
    """Three rounds: raw commits, and a system that is half as fast each time, while the machine gets slower."""
    environment = Environment(run_id="report")
    raw = Result(system=BY_NAME["raw-django-postgresql"](environment), versions={"PostgreSQL": "15.1"})
    raw.seconds[COMMITS] = [1.0, 2.0, 8.0]
    ours = Result(system=BY_NAME["pikku-inline-postgresql"](environment), versions={"Django": "5.2"})
    ours.seconds = {CHAIN_1: [0.002, 0.004, 0.003], CHAIN_100: [0.2, 0.4, 1.6]}
    ours.count = Count(statements=2.0, transactions=2.0, round_trips=2.0)
    return Outcome(rounds=3, results=[raw, ours], missing={"DBOS": "the package dbos is not installed"})


def test_a_ratio_is_the_median_of_the_ratios_within_the_rounds(outcome: Outcome) -> None:
    raw, ours = outcome.results
    assert report.ratio(ours, raw) == pytest.approx(0.5)
    assert report.ratio(ours, None) is None
    assert report.rates(ours) == pytest.approx([500, 250, 62.5])


def test_a_peer_that_was_not_measured_has_no_ratio(outcome: Outcome) -> None:
    assert report.ratios(outcome.results[1], outcome) == {"raw": pytest.approx(0.5), "DBOS": None, "Celery": None}


def test_the_table_shows_medians_ratios_counts_versions_and_what_is_missing(outcome: Outcome) -> None:
    text = report.table(outcome)
    row = next(line for line in text.splitlines() if "Pikku Storage inline, PostgreSQL" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:] == ["3.0", "-", "400", "-", "250", "0.50", "-", "-", "2.0", "2.0"]
    assert "Django 5.2, PostgreSQL 15.1." in text
    assert "medians of 3 interleaved rounds" in text
    assert "not measured: DBOS: the package dbos is not installed" in text


def test_all_lines_of_the_table_are_as_long(outcome: Outcome) -> None:
    lines = [line for line in report.table(outcome).splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1


def test_growth_has_a_table_of_its_own(outcome: Outcome) -> None:
    step = Comparison(title="a step: the first, the last", unit="ms", first=2.0, second=3.0, goal=1.2)
    # Figures of different minutes bring their own ratio.
    runs = Comparison(title="a step: empty, full", unit="ms", first=2.0, second=3.0, ratio=0.9)
    outcome.comparisons += [step, runs]
    rows = [line for line in report.table(outcome).splitlines() if line.startswith("| a step")]
    assert [[cell.strip() for cell in row.strip("|").split("|")[1:]] for row in rows] == [
        ["ms", "2.00", "3.00", "1.50", "≤ 1.20"],
        ["ms", "2.00", "3.00", "0.90", "-"],
    ]
    assert [each["ratio"] for each in report.as_json(outcome)["comparisons"]] == [1.5, 0.9]


def test_without_results_only_the_reasons_are_said() -> None:
    text = report.table(Outcome(rounds=1, results=[], missing={"DBOS": "gone"}))
    assert "|" not in text
    assert "not measured: DBOS: gone" in text


def test_the_json_has_every_round(outcome: Outcome) -> None:
    document = json.loads(json.dumps(report.as_json(outcome)))
    raw, ours = document["systems"]
    assert raw["seconds"] == {"commits-1000": [1.0, 2.0, 8.0]}
    assert ours["per_step"] == {"statements": 2.0, "transactions": 2.0, "round_trips": 2.0}
    assert document["missing"] == {"DBOS": "the package dbos is not installed"}


def test_every_system_names_others_that_exist_and_does_what_its_rate_is_taken_from() -> None:
    for system in ALL:
        assert system.rate in system.scenarios
        assert {*system.peers.values(), *filter(None, [system.raw])} <= set(BY_NAME)
    assert BURST.key == "burst-20x10"
