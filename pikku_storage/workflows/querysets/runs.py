"""State changes of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from pikku_storage.db.operations import Delete, Expired, Insert, Merge, Operation, Update
from pikku_storage.ids import new_token
from pikku_storage.json import Json
from pikku_storage.workflows.limits import DEFAULT_PRIORITY, FIRST, not_after
from pikku_storage.workflows.querysets.base import LIVE, EngineQuerySet
from pikku_storage.workflows.querysets.rows import insert_of
from pikku_storage.workflows.records import Run
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES, RunStatus, run_statuses_before

if TYPE_CHECKING:
    from pikku_storage.workflows.models import WorkflowRun  # noqa: F401 - named in the base class as text


_NOT_WAITING: dict[str, Any] = {"waits_for": None, "line": None, "line_place": None, "lined_up_at": None}


WIRE_TYPE_LENGTH = 64
"""A trigger with a longer name is kept in `wire` alone."""


class RunQuerySet(EngineQuerySet["WorkflowRun"]):
    """State changes of runs."""

    def create_run(self, values: Mapping[str, Any], *with_it: Operation) -> bool:
        """Insert a run, and what belongs to it; `False` if there is one with this id already."""
        try:
            with self.engine.savepoint():
                self._apply(Insert(self.model, with_wire_type(values)), *with_it)
        except IntegrityError:
            if self.filter(pk=values["id"]).exists():
                return False
            raise
        return True

    def create_runs(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert runs with the same columns, those that are not there yet."""
        try:
            with self.engine.savepoint():
                self._apply(insert_of(self.model, [with_wire_type(row) for row in rows]))
        except IntegrityError:
            for values in rows:
                self.create_run(values)

    def enter(self, run_id: str, token: str, *, worker: str, at: datetime, until: datetime) -> Run | None:
        """Let a pass into a live run, unless another one is inside (engine.md §2): the run as it is then, or `None`."""
        where = {"id": run_id, "status": LIVE, "pass_until": Expired(at)}
        values = {
            "pass_token": token,
            "pass_until": until,
            "due_at": until,
            "status": RunStatus.RUNNING.value,
            "error": None,
            "gate_opened_at": None,
            "waits_for": None,
            "last_worker": worker,
            "updated_at": at,
        }
        row = self._take(Update(self.model, where, values), Run.COLUMNS, durable=False)
        return None if row is None else Run.from_row(row)

    def leave(
        self,
        run_id: str,
        token: str,
        *,
        seen_wake: str | None,
        at: datetime,
        due_at: datetime | None,
        waits_for: Json = None,
        suspended_for: Json = None,
        redrives: int | None = None,
        lines_up: Mapping[str, Any] | None = None,
        gate_opened_at: datetime | None = None,
        also: Sequence[Operation] = (),
    ) -> bool:
        """End a pass that waits; `False` if the run was woken meanwhile, or is not this pass's any more.

        `waits_for` says for what. With an error in `suspended_for` the run becomes suspended and shows it; with
        `gate_opened_at` it is listed among those that ask for an approval. `lines_up` is its place before a limit
        (`place_in`). `also` happens with it.
        """
        status = RunStatus.RUNNING if suspended_for is None else RunStatus.SUSPENDED
        return self._change(
            {"id": run_id, "pass_token": token, "wake_token": seen_wake, "status": RunStatus.RUNNING.value},
            *also,
            durable=suspended_for is not None,
            pass_token=None,
            pass_until=None,
            due_at=due_at,
            status=status.value,
            error=suspended_for,
            redrives=redrives,
            gate_opened_at=gate_opened_at,
            waits_for=waits_for,
            updated_at=at,
            **(lines_up or {}),
        )

    def settle(
        self,
        run_id: str,
        token: str,
        status: RunStatus,
        *,
        at: datetime,
        output: Json,
        error: Json,
        also: Sequence[Operation] = (),
    ) -> bool:
        """End a run from inside its pass. `also` happens with it."""
        return self._set_status({"pass_token": token}, run_id, status, at, output, error, None, also)

    def set_status(
        self,
        run_id: str,
        status: RunStatus,
        *,
        at: datetime,
        output: Json,
        error: Json,
        due_at: datetime | None,
        waits_for: Json = None,
        also: Sequence[Operation] = (),
    ) -> bool:
        """Set a live run's status from outside; a terminal one stays as it is. A pass inside is shut out and starts
        nothing more. `waits_for` says what a suspended one waits for. `also` happens with it."""
        return self._set_status({}, run_id, status, at, output, error, due_at, also, waits_for)

    def request_cancel(self, run_id: str, error: Json, *, at: datetime) -> bool:
        """Ask for the end of a live run after what it did has been undone; `False` if it ended, or was asked before.

        A pass inside is shut out, so that it begins no further step; the next one undoes.
        """
        return self._change(
            {"id": run_id, "status": LIVE, "cancel_requested_at": None},
            status=RunStatus.RUNNING.value,
            error=None,
            cancel_requested_at=at,
            cancel_request=error,
            pass_token=None,
            pass_until=None,
            wake_token=new_token(),
            due_at=at,
            redrives=0,
            updated_at=at,
        )

    def _set_status(
        self,
        fence: Mapping[str, Any],
        run_id: str,
        status: RunStatus,
        at: datetime,
        output: Json,
        error: Json,
        due_at: datetime | None,
        also: Sequence[Operation],
        waits_for: Json = None,
    ) -> bool:
        return self._change(
            {"id": run_id, "status": run_statuses_before(status), **fence},
            *also,
            status=status.value,
            output=output,
            error=error,
            due_at=None if status in TERMINAL_RUN_STATUSES else due_at,
            pass_token=None,
            pass_until=None,
            gate_opened_at=None,
            updated_at=at,
            **{**_NOT_WAITING, "waits_for": waits_for},
        )

    def resume(self, run_id: str, *, at: datetime) -> bool:
        """`wake` for somebody who asks the run to go on: a suspended run is running from now on."""
        where = {"id": run_id, "status": LIVE}
        values = {
            "status": RunStatus.RUNNING.value,
            "error": None,
            "gate_opened_at": None,
            "waits_for": None,
            "wake_token": new_token(),
            "due_at": at,
            "redrives": 0,
        }
        return self._change(where, durable=False, **values)

    def wake(self, run_id: str, *, at: datetime) -> bool:
        """Give a live run a reason to look again, which no pass inside can miss (engine.md §2)."""
        return bool(self._apply(self.wake_up(run_id, at), durable=False)[0])

    def wake_up(self, run_id: str, at: datetime) -> Update:
        """`wake` as an operation, to happen together with another one. The redrive count 0 tells the relay that this is
        no mere check."""
        return Update(
            self.model, {"id": run_id, "status": LIVE}, {"wake_token": new_token(), "due_at": at, "redrives": 0}
        )

    def renew(self, run_id: str, token: str, *, until: datetime, deadline_at: datetime | None = None) -> bool:
        """Prolong a pass; `False` if it is over. The relay looks at the run at its deadline all the same."""
        due_at = not_after(until, deadline_at)
        return self._change(
            {"id": run_id, "pass_token": token, "status": LIVE}, durable=False, pass_until=until, due_at=due_at
        )

    def give_up(self, run_id: str, token: str, *, due_at: datetime) -> bool:
        """End a pass that could not go on; the run is looked at again at `due_at`."""
        where = {"id": run_id, "pass_token": token, "status": LIVE}
        return self._change(where, pass_token=None, pass_until=None, due_at=due_at, redrives=0)

    def postpone(self, run_id: str, *, seen: datetime, due_at: datetime, redrives: int | None) -> bool:
        """Move the due time on, for the one relay that saw it (compare-and-swap)."""
        return self._change(
            {"id": run_id, "due_at": seen, "status": LIVE}, durable=False, due_at=due_at, redrives=redrives
        )

    # -- lines before limits -------------------------------------------------------------------------------------------

    @staticmethod
    def place_of(run: Run) -> str:
        """Where a run stands in every line, as a text that sorts: the highest priority first, then the oldest."""
        priority = DEFAULT_PRIORITY if run.priority is None else run.priority
        return f"{FIRST - priority}-{round(run.created_at.timestamp() * 1000):015}-{run.id}"

    def place_in(self, line: str, run: Run, *, since: datetime) -> dict[str, Any]:
        """The values of a run that stands in a line."""
        return {"line": line, "line_place": self.place_of(run), "lined_up_at": since}

    def line_up(self, run: Run, line: str, *, since: datetime, waits_for: Json) -> bool:
        """Put a run into a line that no pass is inside of; whoever is inside sees to it itself."""
        where = {"id": run.id, "status": LIVE, "pass_token": None}
        return self._change(where, durable=False, waits_for=waits_for, **self.place_in(line, run, since=since))

    def admit(self, run_id: str, token: str, *, at: datetime) -> bool:
        """Let a run that a pass is inside of leave its line; `False` if the pass is over."""
        where = {"id": run_id, "pass_token": token, "status": LIVE}
        return self._change(where, durable=False, admitted_at=at, **_NOT_WAITING)

    def first_in(self, line: str, limit: int) -> list[dict[str, Any]]:
        """Who stands first in a line: `id`, `line_place`, `inline`, `priority`, `redrives`. One indexed read."""
        columns = ("id", "line_place", "inline", "priority", "redrives")
        return self.engine.read(self.model, {"line": line}, columns, order_by=("line_place",), limit=limit)

    def is_anyone_in(self, lines: Sequence[str]) -> bool:
        """Whether anyone stands in one of these lines."""
        return bool(self.engine.read(self.model, {"line": list(lines)}, ("id",), limit=1))

    def call(self, run_ids: Sequence[str], line: str, *, due_at: datetime) -> int:
        """Wake runs that stand in a line; the redrive count tells that they were called."""
        values = {"wake_token": new_token(), "due_at": due_at, "redrives": 0}
        where = {"id": list(run_ids), "line": line, "status": LIVE}
        return self._apply(Update(self.model, where, values), durable=False)[0]

    def dissolve(self, run_ids: Sequence[str], line: str, *, due_at: datetime) -> int:
        """Wake runs that stand in a line which is no more."""
        values = {"wake_token": new_token(), "due_at": due_at, "redrives": 0, **_NOT_WAITING}
        where = {"id": list(run_ids), "line": line, "status": LIVE}
        return self._apply(Update(self.model, where, values), durable=False)[0]

    def merge_state(self, run_id: str, key: str, value: Json, *, at: datetime) -> bool:
        """Set one key of the run's state in the database; concurrent keys never lose each other."""
        return bool(self._merge(Merge(self.model, run_id, "state", key, value, at)))

    def remove(self, run_ids: Sequence[str], *, statuses: Sequence[str], ended_by: datetime | None) -> int:
        """Delete those of these runs that ended in one of these statuses, by that time if one is given; answers how
        many this call deleted. Their steps are gone already. A run that was begun anew under the same id stays."""
        ended = {} if ended_by is None else {"updated_at": Expired(ended_by)}
        return self._apply(Delete(self.model, {"id": list(run_ids), "status": list(statuses), **ended}))[0]

    def _change(self, where: Mapping[str, Any], /, *also: Operation, durable: bool = True, **values: Any) -> bool:
        # Not durable are leases, wake-ups and due times: a crash of the database server that loses one costs time only.
        return bool(self._apply(Update(self.model, where, values), *also, durable=durable)[0])


def with_wire_type(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a run with the one that is made of another one."""
    wire = values.get("wire")
    found = wire.get("type") if isinstance(wire, Mapping) else None
    is_short = isinstance(found, str) and len(found) <= WIRE_TYPE_LENGTH
    return {**values, "wire_type": found if is_short else None}
