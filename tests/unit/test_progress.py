"""The progress bar of `rotate_keys`."""

from io import StringIO

import pytest

from pikku_storage.secrets import progress
from pikku_storage.secrets.progress import ProgressBar


def test_it_is_drawn_over_and_over_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", -1)
    stream = StringIO()
    with ProgressBar("secrets", 10_000, stream) as bar:
        bar.advance(2_500)
        bar.advance(20_000)
    half, full, end = stream.getvalue().split("\r\033[K")[1:]
    assert half == f"secrets {'█' * 7}{'░' * 23} 2,500 of 10,000"
    assert full == f"secrets {'█' * 30} 22,500 of 10,000"
    assert end == ""


def test_it_is_drawn_now_and_then_only() -> None:
    stream = StringIO()
    with ProgressBar("secrets", 0, stream) as bar:
        for _ in range(100):
            bar.advance(1)
    assert stream.getvalue().count("secrets") == 1


def test_without_a_stream_nothing_is_drawn() -> None:
    with ProgressBar("secrets", 10, None) as bar:
        bar.advance(5)
