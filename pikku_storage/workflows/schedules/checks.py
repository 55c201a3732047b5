"""System checks of schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections, router

from pikku_storage.exceptions import WorkflowInputError, WorkflowNotFoundError
from pikku_storage.workflows.registry import registry


@checks.register("pikku")
def check_declarations(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E007`: a declared schedule starts its workflow without input, and that needs some."""
    found: list[checks.CheckMessage] = []
    for definition in list(registry.workflows.values()):
        if definition.schedule is None:
            continue
        try:
            definition.check({})
        except WorkflowInputError as error:
            hint = "Give each parameter a default, or make the schedule with ScheduleService or in the admin."
            found.append(
                checks.Error(f"The schedule of {definition.source_place}: {error}", hint=hint, id="pikku.E007")
            )
    return found


@checks.register("pikku", checks.Tags.database)
def check_schedules(
    *, app_configs: Sequence[AppConfig] | None = None, databases: Sequence[str] | None = None, **options: Any
) -> list[checks.CheckMessage]:
    """`pikku.W004`: an active schedule whose runs would wait for code that this process does not have, or that does
    not take its input. Asked for by `check --database`, and by `migrate`."""
    from pikku_storage.workflows.models import WorkflowSchedule

    using = router.db_for_read(WorkflowSchedule)
    if using not in (databases or ()):
        return []
    connection = connections[using]
    if WorkflowSchedule._meta.db_table not in connection.introspection.table_names():
        # `migrate` asks before it makes the table.
        return []
    hint = "Deploy the workflow, or change, pause or delete the schedule."
    return [checks.Warning(problem, hint=hint, id="pikku.W004") for problem in _problems(using)]


def _problems(using: str) -> Iterator[str]:
    from pikku_storage.workflows.models import WorkflowSchedule

    rows = WorkflowSchedule.objects.using(using).filter(enabled=True, undeclared=False)
    for name, workflow, data in rows.order_by("name").values_list("name", "workflow", "input"):
        try:
            registry.workflow(workflow).check(data)
        except (WorkflowNotFoundError, WorkflowInputError) as error:
            yield f"The schedule {name!r}: {error}"
