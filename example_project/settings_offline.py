"""Settings for commands that need no database: nothing is to be migrated anywhere, so nobody asks a server how far it
is. `make check` compares models with migrations by these, for a database that it does not start."""

from typing import Any

from example_project.settings import *


class Nothing:
    """A router that keeps everything out of every database."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        """Never."""
        return False


DATABASE_ROUTERS = ["example_project.settings_offline.Nothing"]
