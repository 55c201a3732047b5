"""The outcome as a table, and as JSON.

Ratios are taken within each round and their median is shown: what the machine did beside the benchmark was then the
same for both sides.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from benchmarks.comparison import Comparison
from benchmarks.runner import Outcome, Result
from benchmarks.scenarios import CHAIN_1, CHAIN_10, CHAIN_100, COMMITS, FANOUT, Scenario

PEERS = ("DBOS", "Celery")
_TIMES: tuple[tuple[str, Scenario], ...] = (
    ("1 step ms", CHAIN_1),
    ("10 steps ms", CHAIN_10),
    ("100 steps ms", CHAIN_100),
    ("fan-out ms", FANOUT),
)
NOTHING = "-"


def milliseconds(result: Result, scenario: Scenario) -> float | None:
    """The median of the rounds; `None` if the system does not do this."""
    seconds = result.seconds.get(scenario)
    return None if not seconds else statistics.median(seconds) * 1000


def rates(result: Result) -> list[float]:
    """Steps (or commits) per second, by round."""
    scenario = result.system.rate
    return [scenario.total_steps / seconds for seconds in result.seconds.get(scenario, [])]


def ratio(result: Result, other: Result | None) -> float | None:
    """How many times as many steps per second as `other`: the median of the rounds' ratios."""
    if other is None:
        return None
    pairs = list(zip(rates(result), rates(other), strict=False))
    return statistics.median(ours / theirs for ours, theirs in pairs) if pairs else None


def ratios(result: Result, outcome: Outcome) -> dict[str, float | None]:
    """The columns of ratios: to raw commits, and to each peer that does the same work."""
    by_name = {other.system.name: other for other in outcome.results}
    names = {"raw": result.system.raw, **{peer: result.system.peers.get(peer) for peer in PEERS}}
    return {column: ratio(result, by_name.get(name or "")) for column, name in names.items()}


def table(outcome: Outcome) -> str:
    """The one table, in Markdown that reads well as plain text, and what was not measured."""
    ratio_titles = [f"÷ {name}" for name in ("raw", *PEERS)]
    head = ["", *(title for title, _ in _TIMES), "steps/s", *ratio_titles, "statements", "transactions"]
    rows = [head, *(_row(result, outcome) for result in outcome.results)]
    lines = [_aligned(rows)] if outcome.results else []
    rounds = f"medians of {outcome.rounds} interleaved round{'' if outcome.rounds == 1 else 's'}"
    lines += ["", f"{machine()}; load average {os.getloadavg()[1]:.1f}; {rounds}."]
    if outcome.versions:
        lines.append(", ".join(f"{name} {version}" for name, version in outcome.versions.items()) + ".")
    if outcome.results:
        lines.append(_LEGEND)
    if outcome.comparisons:
        head = ["growth and memory", "unit", "first", "second", "second ÷ first", "goal"]
        lines += ["", _aligned([head, *(_comparison(each) for each in outcome.comparisons)]), ""]
    lines += [f"not measured: {title}: {reason}" for title, reason in outcome.missing.items()]
    return "\n".join(lines).strip("\n")


_LEGEND = (
    "steps/s: one client's 100 steps for what is called directly, 20 runs of 10 steps at once for what has workers; "
    "commits/s for raw. "
    "÷ raw: to Django's raw commits/s on the same engine. ÷ DBOS, ÷ Celery: to the peer called the same way. "
    "Statements (without BEGIN and COMMIT) and transactions are counted, for one more step of a chain."
)


def _row(result: Result, outcome: Outcome) -> list[str]:
    per_second = rates(result)
    count = result.count
    return [
        result.system.title,
        *(_number(milliseconds(result, scenario)) for _, scenario in _TIMES),
        _number(statistics.median(per_second) if per_second else None),
        *(NOTHING if value is None else f"{value:.2f}" for value in ratios(result, outcome).values()),
        NOTHING if count is None else f"{count.statements:.1f}",
        NOTHING if count is None else f"{count.transactions:.1f}",
    ]


def _comparison(comparison: Comparison) -> list[str]:
    goal = NOTHING if comparison.goal is None else f"≤ {comparison.goal:.2f}"
    figures = [f"{figure:.2f}" for figure in (comparison.first, comparison.second, comparison.growth)]
    return [comparison.title, comparison.unit, *figures, goal]


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = [f"{'-' * width}{'' if column == 0 else ':'}" for column, width in enumerate(widths)]
    rule = [mark if column == 0 else mark[1:] for column, mark in enumerate(rule)]
    lines = [_line(rows[0], widths), f"| {' | '.join(rule)} |", *(_line(row, widths) for row in rows[1:])]
    return "\n".join(lines)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """What it ran on."""
    return f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Everything, for programs: seconds of each round, and what the table shows."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load_average": list(os.getloadavg()),
        "rounds": outcome.rounds,
        "versions": outcome.versions,
        "missing": outcome.missing,
        "comparisons": [comparison.as_json() for comparison in outcome.comparisons],
        "systems": [
            {
                "name": result.system.name,
                "title": result.system.title,
                "seconds": {scenario.key: seconds for scenario, seconds in result.seconds.items()},
                "per_second": rates(result),
                "rate_of": result.system.rate.key if result.system.rate != COMMITS else "commits",
                "ratios": ratios(result, outcome),
                "per_step": None if result.count is None else asdict(result.count),
            }
            for result in outcome.results
        ],
    }
