"""Settings of the worker processes that the integration tests start: the example project, impatient."""

import os
from pathlib import Path

from example_project import broker
from example_project.settings import *
from example_project.settings import INSTALLED_APPS
from tests.secret_keys import PASSPHRASE

CELERY_BROKER_URL = os.environ["PIKKU_TEST_BROKER_URL"]
CELERY_BROKER_TRANSPORT = None  # type: ignore[assignment]
CELERY_BROKER_TRANSPORT_OPTIONS = {"max_retries": 2, "interval_start": 0, "interval_step": 0.1}
if CELERY_BROKER_URL.startswith("filesystem:"):
    CELERY_BROKER_TRANSPORT = "example_project.broker:Transport"
    CELERY_BROKER_TRANSPORT_OPTIONS = broker.transport_options(Path(os.environ["PIKKU_TEST_BROKER_FOLDER"]))
CELERY_TASK_DEFAULT_QUEUE = os.environ["PIKKU_TEST_QUEUE"]
CELERY_BEAT_SCHEDULE_FILENAME = os.environ["PIKKU_TEST_BEAT_FILE"]
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = float(os.environ.get("PIKKU_TEST_SOFT_SHUTDOWN", "0"))
INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos.ledger"]
PIKKU_STORAGE = {
    "SECRET_KEK": PASSPHRASE,
    "QUEUE": os.environ["PIKKU_TEST_QUEUE"],
    "LEASE": os.environ.get("PIKKU_TEST_LEASE", "3s"),
    "PATIENCE": os.environ.get("PIKKU_TEST_PATIENCE", "2s"),
    "STALLED_AFTER": "5s",
    "RELAY_INTERVAL": "200ms",
    "DISPATCHER": os.environ.get("PIKKU_TEST_DISPATCHER", "pikku_storage.workflows.dispatch.CeleryDispatcher"),
}
