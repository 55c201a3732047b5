"""Which runs a command looks at that needs a sample of them."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import router

from pikku_storage.commands import add_database, check_database
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import LIVE_RUN_STATUSES, RunStatus

SAMPLE = 100
_STATUSES = sorted({*LIVE_RUN_STATUSES, RunStatus.COMPLETED})


def add_sample_arguments(parser: ArgumentParser) -> None:
    """The arguments that `sampled_ids` reads."""
    parser.add_argument("run_ids", nargs="*", metavar="RUN", help="ids of runs")
    parser.add_argument("--workflow", action="append", help="only runs of this workflow; may be repeated")
    parser.add_argument(
        "--status",
        action="append",
        choices=RunStatus.values,
        help=f"only these; may be repeated (default: {', '.join(_STATUSES)})",
    )
    parser.add_argument("--limit", type=int, default=SAMPLE, help=f"the newest of each workflow (default: {SAMPLE})")
    add_database(parser, "where runs are read")


def sampled_ids(options: dict[str, Any]) -> list[str]:
    """Ids of the runs that are named, or else of the newest of each registered workflow."""
    check_database(options)
    if options["limit"] < 1:
        raise CommandError("--limit must be at least 1.")
    if options["run_ids"]:
        return list(options["run_ids"])
    runs = WorkflowRun.objects.using(options["database"] or router.db_for_read(WorkflowRun)).filter(
        status__in=options["status"] or _STATUSES
    )
    ids: list[str] = []
    for name in options["workflow"] or sorted(registry.workflows):
        newest = runs.filter(workflow=name).order_by("-created_at", "-id")
        ids += newest.values_list("id", flat=True)[: options["limit"]]
    return ids
