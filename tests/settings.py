"""Settings of the tests: the example project on a database of this test run's own, with a broker in memory.

DATABASE_URL picks the engine (default: SQLite). The name in it is not used: each run of pytest makes and drops its own
database, so that several can run at once, and processes that a test starts find it under the same name.
"""

import os
import tempfile
from pathlib import Path

from example_project.settings import *
from example_project.settings import DATABASES, INSTALLED_APPS

# A file and not `:memory:`, because threads and processes share it.
_name = os.environ.setdefault("PIKKU_TEST_DATABASE", f"test_pikku_{os.getpid()}")
_default = DATABASES["default"]
if _default["ENGINE"] == "django.db.backends.sqlite3":
    _name = str(Path(tempfile.gettempdir()) / f"{_name}.sqlite3")
_default["NAME"] = _name
_default["TEST"] = {"NAME": _name}
# A test counts its own connections.
_default["CONN_MAX_AGE"] = 0

CELERY_BROKER_URL = "memory://"
CELERY_BROKER_TRANSPORT = None  # type: ignore[assignment]
CELERY_BROKER_TRANSPORT_OPTIONS = {}
PIKKU_STORAGE = {}
INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos.ledger"]

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
