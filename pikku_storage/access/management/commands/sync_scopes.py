"""`manage.py sync_scopes`: bring stored scopes and system roles into step with what code declares."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pikku_storage.access.records import Changes, StaleRole, StaleScope
from pikku_storage.access.service import ScopeService
from pikku_storage.commands import add_database, check_database
from pikku_storage.exceptions import AccessError

CANNOT_BEGIN = 2


class Command(BaseCommand):
    """Exit code 0: all is in step. 1: a dry run found something to do. 2: it could not begin."""

    help = (
        "Store the scopes and system roles that code declares. What is not declared any more stays, with all grants, "
        "until --prune. Safe while the application runs, from any number of processes, and after any interruption."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("--dry-run", action="store_true", help="say what would change, and write nothing")
        parser.add_argument("--prune", action="store_true", help="delete what is not declared any more, and its grants")
        add_database(parser, "where the routers put scopes")
        parser.add_argument("--json", action="store_true", help="one JSON object in place of the text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it; the exit code says whether there is something left to do."""
        check_database(options, returncode=CANNOT_BEGIN)
        service, is_dry = ScopeService(options["database"]), options["dry_run"]
        try:
            scopes = service.sync_scopes(dry_run=is_dry)
            roles = service.sync_system_roles(dry_run=is_dry)
        except AccessError as error:
            raise CommandError(str(error), returncode=CANNOT_BEGIN) from error
        prunes = options["prune"] and not is_dry
        # Roles first: what they had is then pruned without them.
        pruned_roles = service.prune_system_roles() if prunes else []
        pruned_scopes = service.prune_scopes() if prunes else []
        stale_scopes, stale_roles = service.find_stale_scopes(), service.find_stale_system_roles()
        has_work = is_dry and bool(scopes or roles or (options["prune"] and (stale_scopes or stale_roles)))
        if options["json"]:
            report = {
                "ok": not has_work,
                "dry_run": is_dry,
                "scopes": {**asdict(scopes), "stale": [asdict(each) for each in stale_scopes], "pruned": pruned_scopes},
                "roles": {**asdict(roles), "stale": [asdict(each) for each in stale_roles], "pruned": pruned_roles},
            }
            self.stdout.write(json.dumps(report))
        else:
            self._say("Scopes", scopes, pruned_scopes, list(map(_of_scope, stale_scopes)), is_dry=is_dry)
            self._say("System roles", roles, pruned_roles, list(map(_of_role, stale_roles)), is_dry=is_dry)
        if has_work:
            sys.exit(1)

    def _say(self, what: str, changes: Changes, pruned: list[str], stale: list[str], *, is_dry: bool) -> None:
        lines = [
            *[f"  + {name}" for name in changes.added],
            *[f"  ~ {name}" for name in changes.changed],
            *[f"  - {name} is not declared any more" for name in changes.undeclared],
            *[f"  x {name} is deleted, with its grants" for name in pruned],
        ]
        title = f"{what}, if this were no dry run:" if is_dry else f"{what}:"
        self.stdout.write("\n".join([title, *lines]) if lines else f"{what} are in step with the code.")
        if stale:
            self.stdout.write(f"  Not declared, and kept until --prune: {', '.join(stale)}")


def _of_scope(stale: StaleScope) -> str:
    return f"{stale.scope} (in {', '.join(stale.roles)})" if stale.roles else stale.scope


def _of_role(stale: StaleRole) -> str:
    return f"{stale.role} ({stale.users} users)" if stale.users != 1 else f"{stale.role} (1 user)"
