"""Settings of the tests: the example project on a database of this test run's own, with a broker in memory.

DATABASE_URL picks the engine (default: SQLite). The name in it is not used: each run of pytest makes and drops its own
database, so that several can run at once, and processes that a test starts find it under the same name. `{worker}` in
the URL of a MongoDB stands for the number of the process of pytest-xdist, for one server each.
"""

import os
import tempfile
from pathlib import Path

import django

from example_project.settings import *
from example_project.settings import DATABASE_ROUTERS, DATABASES, INSTALLED_APPS, PIKKU_STORAGE
from tests.secret_keys import PASSPHRASE

_name = os.environ.setdefault("PIKKU_TEST_DATABASE", f"test_pikku_{os.getpid()}")
_worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
for _database in DATABASES.values():
    # A file and not `:memory:`, because threads and processes share it.
    _is_file = _database["ENGINE"] == "django.db.backends.sqlite3"
    _database["NAME"] = str(Path(tempfile.gettempdir()) / f"{_name}.sqlite3") if _is_file else _name
    if _is_file:
        # Processes are killed here, never the machine.
        _database["OPTIONS"]["init_command"] += "PRAGMA synchronous=OFF;"
    _database["TEST"] = {"NAME": _database["NAME"]}
    _database["HOST"] = _database.get("HOST", "").replace("{worker}", _worker)
    # A test counts its own connections.
    _database["CONN_MAX_AGE"] = 0

CELERY_BROKER_URL = "memory://"
CELERY_BROKER_TRANSPORT = None  # type: ignore[assignment]
CELERY_BROKER_TRANSPORT_OPTIONS = {}
PIKKU_STORAGE = {"DATABASE": PIKKU_STORAGE["DATABASE"], "SECRET_KEK": PASSPHRASE}
DATABASE_ROUTERS = ["tests.routers.TestsRouter", *DATABASE_ROUTERS[1:]]
INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos.ledger", "tests.shelf"]

if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
