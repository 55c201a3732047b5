"""The workers of the integration tests, to be treated badly."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Workers

SEED = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1_000_000)))


@pytest.fixture
def chance() -> random.Random:
    """The randomness of a test. `CHAOS_SEED` repeats a run; a failing test shows its seed."""
    print(f"CHAOS_SEED={SEED}")  # noqa: T201 - pytest shows it for a failing test only
    return random.Random(SEED)  # noqa: S311 - no secret


@pytest.fixture
def workers(redis_url: str, tmp_path: Path, process_env: dict[str, str]) -> Iterator[Workers]:
    """Workers on Redis, the broker that loses most."""
    made = Workers(redis_url, tmp_path, process_env)
    yield made
    made.stop_all()
