"""Settings of the web servers that the tests of sockets start: the example project, with short leases."""

import json
import os

from example_project.settings import *
from example_project.settings import INSTALLED_APPS
from example_project.settings import PIKKU_STORAGE as GIVEN

# The database is that of the tests, with their tables.
INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos.ledger", "tests.shelf"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
PIKKU_STORAGE = {**GIVEN, **json.loads(os.environ["PIKKU_TEST_CHANNELS"])}
