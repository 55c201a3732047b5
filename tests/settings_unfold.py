"""The settings of the tests with django-unfold over the admin: the console does not need it, and must not break."""

from __future__ import annotations

from tests.settings import *
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = ["unfold", *INSTALLED_APPS]
