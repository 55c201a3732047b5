"""The runner, on the one real system that needs no server: sqlite3."""

from collections.abc import Iterator
from typing import ClassVar

import pytest

from benchmarks.environment import Environment, MissingError
from benchmarks.runner import Runner
from benchmarks.scenarios import CHAIN_1, Kind, Scenario
from benchmarks.systems.base import System
from benchmarks.systems.raw import RawSqlite3

FEW = Scenario(kind=Kind.COMMITS, steps=20, repeats=3)


class Sqlite(RawSqlite3):
    """Notes its turns."""

    scenarios = (FEW,)
    rate = FEW
    turns: ClassVar[list[str]] = []

    def run(self, scenario: Scenario) -> float:
        self.turns.append(self.name)
        return super().run(scenario)


class SecondSqlite(Sqlite):
    name = "second"
    title = "a second one"

    file = "second.sqlite3"


class Broken(Sqlite):
    """Fails when it is measured."""

    name = "broken"
    title = "a broken peer"
    fails_after = 0
    was_torn_down = False

    def setup(self) -> None:
        self._goes = 0

    def run(self, scenario: Scenario) -> float:
        self._goes += 1
        if self._goes > self.fails_after:
            raise ValueError("no such option")
        return 1.0

    def teardown(self) -> None:
        Broken.was_torn_down = True


class Absent(Sqlite):
    name = "absent"
    title = "an absent peer"

    def setup(self) -> None:
        raise MissingError("it is not here")


@pytest.fixture
def environment() -> Iterator[Environment]:
    Sqlite.turns.clear()
    Broken.was_torn_down = False
    # A port that nobody listens on: nothing of this needs a server, and cleaning up must not either.
    with Environment(postgres_url="postgres://127.0.0.1:1/none", redis_url="redis://127.0.0.1:1/0") as made:
        yield made


def measure(*systems: System, rounds: int = 2) -> tuple[dict[str, list[float]], dict[str, str], list[str]]:
    """Seconds by name, what is missing, and what was said."""
    said: list[str] = []
    outcome = Runner(systems, [FEW, CHAIN_1], rounds=rounds, say=said.append).measure()
    return {result.system.name: result.seconds[FEW] for result in outcome.results}, outcome.missing, said


def test_a_system_is_measured_once_a_round(environment: Environment) -> None:
    seconds, missing, said = measure(Sqlite(environment), rounds=3)
    assert len(seconds["raw-sqlite3"]) == 3
    assert all(0 < value < 5 for value in seconds["raw-sqlite3"])
    assert missing == {}
    assert said[0] == "setting up raw commits, sqlite3"


def test_the_systems_take_turns_and_another_one_begins_each_round(environment: Environment) -> None:
    measure(Sqlite(environment), SecondSqlite(environment))
    warm_up, rounds = Sqlite.turns[:2], Sqlite.turns[2:]
    assert warm_up == ["raw-sqlite3", "second"]
    assert rounds == ["raw-sqlite3"] * 3 + ["second"] * 6 + ["raw-sqlite3"] * 3


def test_no_round_is_begun_that_would_outlast_the_budget(environment: Environment) -> None:
    runner = Runner([Sqlite(environment)], [FEW], rounds=3, say=lambda text: None, budget=0.0)
    outcome = runner.measure()
    assert outcome.rounds == 1
    assert len(outcome.results[0].seconds[FEW]) == 1


def test_what_is_absent_or_broken_is_named_and_the_rest_goes_on(environment: Environment) -> None:
    seconds, missing, _ = measure(Absent(environment), Broken(environment), Sqlite(environment))
    assert set(seconds) == {"raw-sqlite3"}
    assert missing == {"an absent peer": "it is not here", "a broken peer": "ValueError: no such option"}
    assert Broken.was_torn_down


def test_a_system_that_breaks_in_a_round_is_left_out_from_then_on(environment: Environment) -> None:
    broken = Broken(environment)
    broken.fails_after = 4
    seconds, missing, _ = measure(broken, Sqlite(environment), rounds=3)
    assert seconds["broken"] == [1.0]
    assert "a broken peer" in missing
    assert len(seconds["raw-sqlite3"]) == 3


def test_an_interrupt_tears_everything_down(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Broken, scenario: Scenario) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Broken, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure(Broken(environment))
    assert Broken.was_torn_down


def test_the_guard_of_a_raw_commit_is_checked(environment: Environment) -> None:
    system = Sqlite(environment)
    system.setup()
    system.run(FEW)
    system._number = 0
    with pytest.raises(RuntimeError, match="guard"):
        system.run(FEW)
    system.teardown()
