"""What the pages of virtual users read."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, Sum

from pikku_storage.virtual_users.models import VirtualUserRunStep

STEPS_SHOWN = 100
_CHEAP = ("step_index", "intent_id", "action", "status", "ok", "finding_kinds", "tokens_in", "tokens_out")


def read_totals(using: str, run_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """By run, how many steps it took and tokens it used. One query, none without runs."""
    if not run_ids:
        return {}
    rows = VirtualUserRunStep.objects.using(using).filter(run_id__in=run_ids).order_by().values("run_id")
    totals = rows.annotate(steps=Count("pk"), into=Sum("tokens_in"), out=Sum("tokens_out"))
    return {row["run_id"]: (row["steps"], (row["into"] or 0) + (row["out"] or 0)) for row in totals}


def read_steps(using: str, run_id: str, *, after: int | None) -> tuple[list[VirtualUserRunStep], bool]:
    """Steps by index without their responses, from after that index on, and whether there are more."""
    rows = VirtualUserRunStep.objects.using(using).filter(run_id=run_id)
    if after is not None:
        rows = rows.filter(step_index__gt=after)
    found = list(rows.order_by("step_index").only("key", "run_id", *_CHEAP)[: STEPS_SHOWN + 1])
    return found[:STEPS_SHOWN], len(found) > STEPS_SHOWN
