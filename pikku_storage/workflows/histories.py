"""What a run recorded, whole, so that it can be kept in a file and be replayed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from pikku_storage.json import Json
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.records import Run, StepState

FORMAT = 1
_RUN = ("id", "workflow", "status", "input", "output", "graph_hash", "owner_id")
_STEP = ("step_name", "rpc_name", "data", "status", "result", "error", "group", "queue", "child_run_id")
_NOT_YET = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A run with its state and its steps, the oldest first. Read from a file it has what a replay needs, and no
    times."""

    run: Run
    state: Mapping[str, Json]
    steps: Sequence[StepState]

    def to_json(self) -> dict[str, Json]:
        """As a JSON object, which `from_json` reads."""
        steps: list[Json] = [
            {**{name: getattr(step, name) for name in _STEP}, "settled": step.is_settled} for step in self.steps
        ]
        run: Json = {name: getattr(self.run, name) for name in _RUN}
        return {"format": FORMAT, "run": run, "state": dict(self.state), "steps": steps}

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> Self:
        """From a `to_json` object. Raises `ValueError` for what is none."""
        try:
            if text["format"] != FORMAT:
                raise ValueError(f"a history of format {text['format']!r}, and this version reads {FORMAT}")
            run = Run.new({name: text["run"][name] for name in _RUN})
            steps = [_step_from(run.id, step) for step in text["steps"]]
            return cls(run=run, state=text["state"], steps=steps)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a history: {type(error).__name__} {error}") from None


def _step_from(run_id: str, values: Mapping[str, Any]) -> StepState:
    row: dict[str, Any] = dict.fromkeys(StepState.COLUMNS)
    row |= {name: values[name] for name in _STEP}
    row |= {"id": values["step_name"], "run_id": run_id, "due_at": None if values["settled"] else _NOT_YET}
    return StepState.from_row(row)


def read_histories(run_ids: Sequence[str], using: str | None = None) -> Iterator[History]:
    """The histories of these runs, read one by one; those that are not there are left out."""
    runtime = Runtime(using)
    for run_id in run_ids:
        run = runtime.read_run(run_id)
        if run is not None:
            yield History(run=run, state=runtime.read_state(run_id), steps=runtime.read_steps(run_id))
