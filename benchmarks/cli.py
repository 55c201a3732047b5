"""The command line: `python -m benchmarks`.

Figures never make it fail: it ends with 0 if it could print a table, and with 1 only if nothing could be measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from benchmarks import report
from benchmarks.environment import POSTGRES_URL, REDIS_URL, Environment
from benchmarks.growth import compare, compare_agents
from benchmarks.runner import Outcome, Result, Runner
from benchmarks.scenarios import ALL as SCENARIOS
from benchmarks.scenarios import CHAIN_100
from benchmarks.statements import count
from benchmarks.systems import BY_NAME, make

ROUNDS = 5
QUICK_ROUNDS = 3
QUICK_BUDGET = 36.0
"""Seconds for setting up and measuring in a quick run; the rest takes sixteen. A busy machine gets fewer rounds."""
_QUICK_COUNTS = ("pikku-inline-sqlite", "pikku-inline-postgresql")

_NOT_QUICK = ("pikku-queued-steps", "celery-django")
"""They take the longest."""

_EPILOG = f"""environment:
  BENCH_QUICK=1        at most {QUICK_ROUNDS} rounds, and fewer things; under a minute
  BENCH_POSTGRES_URL   a server on which databases may be made (default {POSTGRES_URL})
  BENCH_REDIS_URL      default {REDIS_URL}
A server or a package that is missing is named at the end, and the rest is measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; answers with the exit code."""
    options = _parser().parse_args(arguments)
    quick = os.environ.get("BENCH_QUICK", "0") not in ("", "0")
    end_on_signals()
    try:
        rounds = options.rounds or (QUICK_ROUNDS if quick else ROUNDS)
        names = options.systems or [name for name in BY_NAME if not (quick and name in _NOT_QUICK)]
        compares = options.growth or not (quick or options.systems)
        compares_agents = quick and not options.systems
        outcome = _measure(names, rounds, quick=quick, compares=compares, compares_agents=compares_agents)
    except KeyboardInterrupt:
        _say("stopped")
        return 130
    _say("")
    print(report.table(outcome))
    if options.json:
        text = json.dumps(report.as_json(outcome), indent=2, ensure_ascii=False)
        options.json.write_text(f"{text}\n", encoding="utf-8")
    return 0 if outcome.results else 1


def _measure(names: list[str], rounds: int, *, quick: bool, compares: bool, compares_agents: bool) -> Outcome:
    with Environment.from_environ() as environment:
        environment.export()
        outcome = Runner(
            make(names, environment),
            SCENARIOS,
            rounds=rounds,
            say=_say,
            quick=quick,
            budget=QUICK_BUDGET if quick else math.inf,
        ).measure()
        for result in outcome.results:
            if _is_counted(result, quick=quick):
                _count(result, outcome)
        if compares:
            _compare(environment, outcome, quick=quick)
        elif compares_agents:
            _compare_agents(environment, outcome)
        _close()
    return outcome


def _compare(environment: Environment, outcome: Outcome, *, quick: bool) -> None:
    try:
        outcome.comparisons.extend(compare(environment, _say, quick=quick))
    except Exception as error:  # noqa: BLE001 - the times are measured all the same
        outcome.missing["growth and memory"] = str(error)


def _compare_agents(environment: Environment, outcome: Outcome) -> None:
    try:
        outcome.comparisons.extend(compare_agents(environment, _say, quick=True))
    except Exception as error:  # noqa: BLE001 - the times are measured all the same
        outcome.missing["growth of agents"] = str(error)


def _is_counted(result: Result, *, quick: bool) -> bool:
    if quick and result.system.name not in _QUICK_COUNTS:
        return False
    return CHAIN_100 in result.seconds and result.system.uses_database


def _count(result: Result, outcome: Outcome) -> None:
    _say(f"counting the statements of {result.system.title}")
    try:
        result.count = count(result.system.name)
    except Exception as error:  # noqa: BLE001 - the times are measured all the same
        outcome.missing[f"statements of {result.system.title}"] = str(error)


def _close() -> None:
    from benchmarks.django_project import close_connections

    close_connections()


def end_on_signals() -> None:
    """Let SIGTERM do what Ctrl-C does, and let only the first of either interrupt: what follows is the cleaning up."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        _say("stopping what was started, and removing what was made ...")
        raise KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)


def _say(text: str) -> None:
    """Progress goes to stderr: a line that is overwritten on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:100]}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure durable steps of Pikku Storage beside its peers and raw commits, in interleaved rounds.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE as JSON, too")
    parser.add_argument("--rounds", type=_positive, metavar="N", help=f"interleaved rounds (default {ROUNDS})")
    parser.add_argument(
        "--growth",
        action="store_true",
        help="also measure growth and memory, which otherwise only the full run of all systems does",
    )
    parser.add_argument(
        "systems",
        nargs="*",
        metavar="SYSTEM",
        type=_system,
        help=f"measure only these: {', '.join(BY_NAME)}",
    )
    return parser


def _system(text: str) -> str:
    if text not in BY_NAME:
        raise argparse.ArgumentTypeError(f"there is no system {text!r}; there are {', '.join(BY_NAME)}")
    return text


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one round is needed")
    return number
