"""Where the tests keep the package's tables."""

from django.conf import settings

from example_project.databases import PIKKU
from pikku_storage.db.router import PikkuRouter


class TestsRouter(PikkuRouter):
    """Does not ask PIKKU_STORAGE, which tests change."""

    alias = PIKKU if PIKKU in settings.DATABASES else "default"
