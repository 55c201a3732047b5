"""A run's history as text that is the same each time the same things happen."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from textwrap import dedent, indent
from typing import TypeAlias

from pikku_storage.durations import to_duration_text
from pikku_storage.exceptions import WorkflowRunNotFoundError
from pikku_storage.ids import invocation_id
from pikku_storage.json import Json
from pikku_storage.testing import UPDATE_OPTION
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.records import HistoryEntry, Run, StepState
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import StepStatus

LONGEST_LINE = 100
"""The most characters of JSON that stay on one line."""

AnyRun: TypeAlias = WorkflowRunHandle | Run | str
Replacements: TypeAlias = Mapping[str, str]


def history_of(run: AnyRun, *, replace: Replacements | None = None, using: str | None = None) -> str:
    """What the run was given and how it ended, and each of its steps in order with its data and its attempts.

    No time is in it, and the run's own ids are replaced by what they are of: `<run id>`, `<invocation id of pack>`.
    `replace` maps regular expressions to what shall stand for whatever else changes. Raises
    `WorkflowRunNotFoundError`.
    """
    run_id = run if isinstance(run, str) else run.id
    runs = WorkflowRunService(using)
    stored = runs.get_run(run_id)
    if stored is None:
        raise WorkflowRunNotFoundError(run_id)
    steps = [detail.step for detail in runs.get_run_steps(run_id)]
    attempts: dict[str, list[HistoryEntry]] = {step.step_id: [] for step in steps}
    for entry in runs.get_run_history(run_id):
        attempts[entry.step_id].append(entry)
    writer = _Writer({**_own_ids(run_id, steps), **(replace or {})})
    writer.run(stored, WorkflowService(using).get_run_state(run_id))
    for step in steps:
        writer.step(step, attempts[step.step_id])
    return "\n".join(writer.lines)


def assert_history(
    run: AnyRun, expected: str | Path, *, replace: Replacements | None = None, update: bool = False
) -> None:
    """Raise an `AssertionError` that shows the difference, unless the run's history is the expected text, or the
    content of that file. The text may be indented. With `update` the file is written instead."""
    actual = history_of(run, replace=replace)
    if isinstance(expected, Path):
        if update:
            expected.parent.mkdir(parents=True, exist_ok=True)
            expected.write_text(f"{actual}\n", encoding="utf-8")
        if not expected.exists():
            raise AssertionError(f"There is no file {expected}. With {UPDATE_OPTION} pytest writes it:\n\n{actual}")
        name, wanted = str(expected), expected.read_text(encoding="utf-8").strip("\n")
        hint = f"\n\nIf it is right, {UPDATE_OPTION} writes it to the file."
    else:
        name, wanted, hint = "expected", dedent(expected).strip(), ""
    if actual != wanted:
        difference = unified_diff(wanted.splitlines(), actual.splitlines(), name, "the run's history", lineterm="")
        raise AssertionError("The run has another history:\n\n" + "\n".join(difference) + hint)


class _Writer:
    """Writes lines, with `replaced` (patterns, and what stands for them) replaced."""

    def __init__(self, replaced: Replacements) -> None:
        self.lines: list[str] = []
        self._replaced = [(re.compile(pattern), name) for pattern, name in replaced.items()]

    def run(self, run: Run, state: dict[str, Json]) -> None:
        """How it began and ended."""
        self.lines.append(f"{run.workflow}: {run.status}")
        self._value("input", run.input)
        if run.output is not None:
            self._value("output", run.output)
        if run.error is not None:
            self._error("error", run.error)
        if state:
            self._value("state", state)

    def step(self, step: StepState, attempts: Sequence[HistoryEntry]) -> None:
        """What it was asked to do, and its attempts."""
        self.lines.append(f"{step.step_name}: {step.status}")
        is_sleep = step.rpc_name is None and isinstance(step.data, dict) and step.data.keys() == {"duration"}
        if is_sleep:
            self.lines.append(f"  sleep: {to_duration_text(step.data['duration'])}")
        else:
            self._value(step.rpc_name or "(a plain callable)", step.data)
        for entry in attempts:
            label = f"{entry.attempt_count}. {entry.status}"
            if entry.status == StepStatus.FAILED:
                self._error(label, entry.error or {})
            elif entry.status == StepStatus.SUCCEEDED and not is_sleep:
                self._value(label, entry.result)
            else:
                self.lines.append(f"  {label}")
        if step.status == StepStatus.FAILED and not step.is_settled:
            self.lines.append(f"  waits for attempt {step.attempt_count + 1} of {step.max_attempts}")

    def _value(self, label: str, value: Json) -> None:
        # Sorted, because a database may keep the keys of an object in an order of its own.
        text = self._replace(json.dumps(value, ensure_ascii=False, sort_keys=True))
        if len(text) > LONGEST_LINE:
            text = self._replace(json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2))
        self._labelled(label, indent(text, "  "))

    def _error(self, label: str, error: Mapping[str, Json]) -> None:
        # Without the stack, which names lines and folders.
        text = ": ".join(str(error[key]) for key in ("name", "message") if error.get(key))
        if error.get("code"):
            text += f" [{error['code']}]"
        self._labelled(label, indent(self._replace(text), "    "))

    def _labelled(self, label: str, text: str) -> None:
        self.lines.append(f"  {label}: {text.strip()}")

    def _replace(self, text: str) -> str:
        for pattern, name in self._replaced:
            text = pattern.sub(name, text)
        return text


def _own_ids(run_id: str, steps: Sequence[StepState]) -> dict[str, str]:
    """Patterns of the ids that are another run's next time, and what stands for them."""
    ids = {run_id: "<run id>"}
    for step in steps:
        ids[step.step_id] = f"<step id of {step.step_name}>"
        ids[invocation_id(run_id, step.step_name)] = f"<invocation id of {step.step_name}>"
    return {re.escape(own): name.replace("\\", r"\\") for own, name in ids.items()}
