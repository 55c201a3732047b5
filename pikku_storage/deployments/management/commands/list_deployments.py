"""`manage.py list_deployments`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand

from pikku_storage.db import engine
from pikku_storage.deployments.models import Deployment
from pikku_storage.deployments.service import DeploymentService


class Command(BaseCommand):
    """Shows who is up."""

    help = "List the deployments that are up, with their endpoints and functions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `BaseCommand.add_arguments`."""
        parser.add_argument("--function", metavar="NAME", help="only those that serve this function")

    def handle(self, *, function: str | None, **options: Any) -> None:
        """See `BaseCommand.handle`."""
        service = DeploymentService()
        found = service.list_deployments() if function is None else service.find_deployments(function)
        if not found:
            self.stdout.write("No deployment is up.")
            return
        now = engine(Deployment.objects.db).now()
        for each in found:
            seconds = max(0, round((now - each.last_heartbeat).total_seconds()))
            functions = ", ".join(each.functions) or "no functions"
            self.stdout.write(f"{each.deployment_id}  {each.endpoint}  {seconds} s ago  {functions}")
