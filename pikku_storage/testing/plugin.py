"""The pytest plugin: fixtures, and the histories of a failed test's runs in its report.

Fixtures reach each other by names that no project uses, so that a project may have a `clock` of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from pikku_storage.testing import UPDATE_OPTION

if TYPE_CHECKING:
    from pikku_storage.testing import FakeFunctions, FrozenClock, RunUntilIdle
    from pikku_storage.testing.history import AnyRun, Replacements

SHOWN_RUNS = 5
"""How many runs the report of a failed test shows: the newest."""
FIXTURES = frozenset({"assert_history", "clock", "fake_function", "run_until_idle"})
"""Whoever uses one of these has runs to show."""


class AssertHistory(Protocol):
    """What the fixture `assert_history` is."""

    def __call__(self, run: AnyRun, expected: str | Path, *, replace: Replacements | None = None) -> None:
        """See `pikku_storage.testing.assert_history`; the path of a file is relative to that of the test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our option."""
    group = parser.getgroup("pikku storage")
    group.addoption(UPDATE_OPTION, action="store_true", help="write the files of assert_history")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the runs of a failed test did."""
    report = yield
    if report.when == "call" and report.failed and FIXTURES.intersection(getattr(item, "fixturenames", ())):
        report.sections.append(("workflow runs", _newest_histories()))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests that need the database access to it, by the mark of pytest-django. To ask for its fixture `db` while
    the test runs would be too late: it makes the databases that the tests say they need before the first of them."""
    if config.pluginmanager.hasplugin("django"):
        for item in items:
            needs = "_pikku_database" in getattr(item, "fixturenames", ())
            if needs and item.get_closest_marker("django_db") is None:
                item.add_marker(pytest.mark.django_db)


@pytest.fixture
def _pikku_database() -> None:
    """Access to the database. Without pytest-django that is the project's affair."""


@pytest.fixture
def _pikku_clock() -> Iterator[FrozenClock]:
    from pikku_storage.testing import frozen_clock

    with frozen_clock() as clock:
        yield clock


@pytest.fixture
def clock(_pikku_clock: FrozenClock) -> FrozenClock:
    """The engine's clock, which stands still until it is told to `advance("2h")`."""
    return _pikku_clock


@pytest.fixture
def run_until_idle(_pikku_database: None, _pikku_clock: FrozenClock) -> Iterator[RunUntilIdle]:
    """Drives every live run in this process, by the `clock` and without a broker; answers with what still waits."""
    from pikku_storage.testing import driving

    with driving() as run:
        yield run


@pytest.fixture
def fake_function() -> Iterator[FakeFunctions]:
    """Puts something in the place of a step function until the test ends: `fake_function("charge_card", returns=1)`."""
    from pikku_storage.testing import faking

    with faking() as fakes:
        yield fakes


@pytest.fixture
def assert_history(request: pytest.FixtureRequest, _pikku_database: None) -> AssertHistory:
    """Compares a run's history with a text, or with a file beside the test."""
    from pikku_storage import testing

    def compare(run: AnyRun, expected: str | Path, *, replace: Replacements | None = None) -> None:
        if isinstance(expected, Path):
            expected = request.path.parent / expected
        testing.assert_history(run, expected, replace=replace, update=request.config.getoption(UPDATE_OPTION))

    return compare


def _newest_histories() -> str:
    try:
        from pikku_storage.testing import history_of
        from pikku_storage.workflows.runs import WorkflowRunService

        newest = WorkflowRunService().list_runs(limit=SHOWN_RUNS)
        return "\n\n".join(history_of(run) for run in reversed(newest)) or "There are none."
    except Exception as error:  # noqa: BLE001 - the report of a failed test is more than this part of it
        return f"They could not be read: {error}"
