"""Settings: the databases as the example project sets them up, on this run's own server objects.

The variables are set by `benchmarks.environment.Environment.export`.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from example_project.databases import database_from_url

BASE_DIR = Path(os.environ["BENCH_DIRECTORY"])
SECRET_KEY = "for-benchmarks-only"
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"

INSTALLED_APPS = ["pikku_storage.workflows", "pikku_storage.secrets", "pikku_storage.agents", "benchmarks.project"]
if find_spec("django_celery_results") is not None:
    INSTALLED_APPS.append("django_celery_results")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES = {
    "default": database_from_url(os.environ["BENCH_DJANGO_URL"], base_dir=BASE_DIR),
    "sqlite": database_from_url(f"sqlite:///{os.environ['BENCH_SQLITE_FILE']}", base_dir=BASE_DIR),
}

_PREFIX = os.environ["BENCH_REDIS_PREFIX"]
PIKKU_STORAGE = {"QUEUE": os.environ.get("BENCH_QUEUE", "pikku"), "SECRET_KEK": "for-benchmarks-only"}
CELERY_BROKER_URL = os.environ["BENCH_BROKER_URL"]
CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": _PREFIX, "max_retries": 3, "interval_start": 0}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = TIME_ZONE
CELERY_WORKER_HIJACK_ROOT_LOGGER = True
