"""Databases for tests."""

from __future__ import annotations

from typing import Any

from djongo import creation


class DatabaseCreation(creation.DatabaseCreation):
    """MongoDB makes a database when something is first written to it."""

    connection: Any

    def _create_test_db(self, verbosity: int, autoclobber: bool, keepdb: bool = False) -> str:
        name = self._get_test_db_name()
        if not keepdb:
            self._destroy_test_db(name, verbosity)
        return str(name)

    def _destroy_test_db(self, test_database_name: str, verbosity: int) -> None:
        self.connection.driver.drop_database(test_database_name)
