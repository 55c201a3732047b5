"""The side thread that renews leases."""

import threading

import pytest
from pytest_django import Settings

from pikku_storage.workflows.engine.leases import LeaseKeeper


@pytest.mark.parametrize("error", [RuntimeError("no database here"), ValueError("whatever")])
def test_a_renewal_that_fails_in_whatever_way_ends_no_other(
    settings: Settings, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    settings.PIKKU_STORAGE = {"LEASE": 30}
    failed, renewed = threading.Event(), threading.Event()

    def fail() -> bool:
        failed.set()
        raise error

    def renew() -> bool:
        if failed.is_set():
            renewed.set()
        return True

    keeper = LeaseKeeper()
    with keeper.keep(fail), keeper.keep(renew):
        assert failed.wait(10)
        renewed.clear()
        assert renewed.wait(10)
    assert "A lease could not be renewed" in caplog.text
