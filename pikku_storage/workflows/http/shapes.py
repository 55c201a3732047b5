"""Records as the contract's JSON: camelCase, and nothing where there is nothing."""

from __future__ import annotations

from pikku_storage.json import Json
from pikku_storage.workflows.records import RunReport
from pikku_storage.workflows.statuses import RunStatus


def report_json(report: RunReport) -> dict[str, Json]:
    """`{id, status, startedAt, completedAt?, deterministic, plannedSteps?, output?, error?, steps}`.

    Times are ISO 8601 in UTC. `output` is there once the run is completed, also if it is null; each step is `{name,
    status, attempts, duration?}`, with the duration of its last attempt in milliseconds.
    """
    optional = {
        "completedAt": None if report.completed_at is None else report.completed_at.isoformat(),
        "plannedSteps": report.planned_steps,
        "error": report.error,
    }
    steps = [
        {"name": step.name, "status": step.status, "attempts": step.attempts}
        | ({} if step.duration is None else {"duration": step.duration})
        for step in report.steps
    ]
    return {
        "id": report.id,
        "status": report.status,
        "startedAt": report.started_at.isoformat(),
        "deterministic": report.deterministic,
        **{name: value for name, value in optional.items() if value is not None},
        **({"output": report.output} if report.status == RunStatus.COMPLETED else {}),
        "steps": steps,
    }
