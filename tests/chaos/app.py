"""The Celery app of the workers that are treated badly: `celery -A tests.chaos.app worker`."""

import os
from datetime import UTC, datetime, timedelta

import django
import time_machine

if minutes := int(os.environ.get("PIKKU_TEST_CLOCK_OFF_BY", "0")):
    # The wall clock of this process, and of those that it forks, is wrong. Not with libfaketime, which fakes the
    # monotonic clock as well, or else makes time.sleep() fail.
    time_machine.travel(datetime.now(UTC) + timedelta(minutes=minutes), tick=True).start()

django.setup()

from tests.chaos import workflows  # noqa: E402 - Django comes first, and the clock before it
from tests.integration.app import app  # noqa: E402

__all__ = ["app", "workflows"]
