"""What the management commands of all apps have in common."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError
from django.db import connections


def add_database(parser: ArgumentParser, default: str = "where runs are written") -> None:
    """The option `--database`; `default` says what is meant without it."""
    parser.add_argument("--database", help=f"the database alias (default: {default})")


def check_database(options: Mapping[str, Any], *, returncode: int = 1) -> None:
    """Raise `CommandError` for an alias that is none."""
    if options["database"] not in {None, *connections}:
        raise CommandError(f"There is no database {options['database']!r} in DATABASES.", returncode=returncode)
