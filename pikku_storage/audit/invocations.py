"""What is audited of a piece of work: who did it, how it ended, and which tables it touched.

    with audit_context("order.refunded", actor=request.user) as audit:
        …
        audit.note("order.checked", {"order": "A17"})

`async with` likewise, and `@audited` for functions of either kind. Importable before apps are ready.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from functools import partial, wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeAlias, TypeVar, overload

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied

from pikku_storage.access.actors import Actor, actor_of
from pikku_storage.audit.observing import observed_by
from pikku_storage.audit.statements import Statement
from pikku_storage.auditing import AuditEvent, Outcome, completing, not_kept, record_all
from pikku_storage.conf import settings
from pikku_storage.ids import new_id
from pikku_storage.json import Json

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Mode: TypeAlias = Literal["best-effort", "transactional"]

INVOKED = "function.invoked"
MOST_EVENTS = 1_000
"""What one piece of work may have in the buffer; further statements are counted, and their tables named."""

_current: ContextVar[Audit | None] = ContextVar("pikku_audit", default=None)


class Audit:
    """One piece of work that is audited; see `audit_context`, which takes the same arguments."""

    def __init__(
        self,
        type: str = INVOKED,
        *,
        actor: Any = None,
        function_id: str | None = None,
        wire_type: str | None = None,
        trace_id: str | None = None,
        pikku_user_id: str | None = None,
        mode: Mode = "best-effort",
        statements: bool = True,
        selects: bool = True,
        values: bool = False,
    ) -> None:
        if mode not in {"best-effort", "transactional"}:
            raise ValueError(f"mode is 'best-effort' or 'transactional', not {mode!r}")
        self.type = type
        self.transaction_id = new_id()
        self.tables: dict[str, None] = {}
        self.changed_columns: dict[str, None] = {}
        self._given: dict[str, Any] = {
            "function_id": function_id,
            "trace_id": trace_id,
            "pikku_user_id": pikku_user_id,
        }
        self._actor = actor_of(actor)
        self._wire_type = wire_type
        self._mode = mode
        self._shows = (statements, selects, values)
        self._buffer: list[AuditEvent] = []
        self._uncounted = 0
        self._stack = ExitStack()

    @property
    def actor(self) -> Actor:
        """Who does it: who was given, or whoever does the work around it."""
        return self._actor

    def note(
        self, type: str, metadata: Mapping[str, Json] | None = None, *, outcome: Outcome | None = "success"
    ) -> None:
        """An event of the caller's own, that belongs to this piece of work."""
        self._keep(self._event(type, outcome, "explicit", dict(metadata or {})))

    async def anote(
        self, type: str, metadata: Mapping[str, Json] | None = None, *, outcome: Outcome | None = "success"
    ) -> None:
        """As `note`, which in the mode `transactional` writes."""
        await sync_to_async(self.note)(type, metadata, outcome=outcome)

    def saw(self, statement: Statement) -> None:
        """A statement of this work; see `observing`."""
        shows_any, shows_selects, shows_values = self._shows
        is_select = statement.kind == "select"
        if is_select and not shows_selects:
            return
        self.tables |= dict.fromkeys(statement.tables)
        if not is_select:
            self.changed_columns |= dict.fromkeys(f"{statement.tables[0]}.{name}" for name in statement.columns)
        if not shows_any:
            return
        if len(self._buffer) >= MOST_EVENTS:
            self._uncounted += 1
            return
        metadata: dict[str, Json] = {"tables": list(statement.tables)}
        if statement.columns:
            metadata["changedColumns"] = list(statement.columns)
        if shows_values and statement.values:
            metadata["values"] = list(statement.values)
        self._keep(self._event(f"query.{statement.kind}", "success", "auto", metadata, query_id=new_id()))

    # -- around the work -----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        outer = _current.get()
        if self._actor.user_id is None and outer is not None:
            self._actor = outer.actor
        self._stack.callback(_current.reset, _current.set(self))
        self._stack.enter_context(observed_by(None if settings.AUDIT_SINK is None else self))
        self._stack.enter_context(completing(self._completed))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
        self._finish(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
        await sync_to_async(self._finish)(error)

    # ------------------------------------------------------------------------------------------------------------------

    def _finish(self, error: BaseException | None) -> None:
        metadata: dict[str, Json] = {"tables": list(self.tables), "changedColumns": list(self.changed_columns)}
        if self._uncounted:
            metadata["statementsNotKept"] = self._uncounted
        if error is not None:
            metadata["error"] = type(error).__name__
        self._buffer.append(self._event(self.type, _outcome_of(error), "auto", metadata))
        events, self._buffer = self._buffer, []
        if self._mode == "best-effort":
            record_all(events)
        elif error is None:
            self._write(events)
        else:
            # What the work raised is worth more than that its trail failed, too.
            try:
                self._write(events)
            except Exception as failure:  # noqa: BLE001 - see above
                not_kept(events, failure)

    def _keep(self, event: AuditEvent) -> None:
        if self._mode == "transactional":
            self._write([event])
        else:
            self._buffer.append(event)

    def _write(self, events: list[AuditEvent]) -> None:
        from pikku_storage.audit.service import AuditService

        if settings.AUDIT_SINK is not None:
            with observed_by(None):
                AuditService().write(events)

    def _event(
        self,
        type: str,
        outcome: Outcome | None,
        source: Literal["auto", "explicit"],
        metadata: Mapping[str, Json],
        *,
        query_id: str | None = None,
    ) -> AuditEvent:
        return AuditEvent(
            type=type,
            outcome=outcome,
            actor=self._actor,
            wire_type=self._wire_type,
            source=source,
            metadata=metadata,
            query_id=query_id,
            transaction_id=self.transaction_id,
            **self._given,
        )

    def _completed(self, event: AuditEvent) -> AuditEvent:
        """An event that another part of the package tells of, with what is known of the work around it."""
        known = {**self._given, "transaction_id": self.transaction_id}
        missing: dict[str, Any] = {name: value for name, value in known.items() if getattr(event, name) is None}
        if event.actor.user_id is None:
            missing["actor"] = self._actor
        return replace(event, **missing)


audit_context = Audit
"""`with audit_context(type, *, actor=None, …) as audit:` audits a piece of work.

`actor` is a user, an id, an `Actor`, or nobody. Best effort: all is written at the end, and a trail that fails is
logged. With `mode="transactional"` each event is written at once, in the same transaction if the trail is in the same
database, and raises if it cannot be. Of statements the tables and changed columns are kept; with `values=True` also
what they set, without `selects` only those that change something, and without `statements` no event of their own. Where
`AUDIT_SINK` is `None` nothing is kept.
"""


class _Unaudited:
    """What `current_audit` answers with where nothing is audited."""

    def __init__(self) -> None:
        self.has_warned = False

    def note(
        self, type: str, metadata: Mapping[str, Json] | None = None, *, outcome: Outcome | None = "success"
    ) -> None:
        """Drop the event, and the first time say so."""
        if not self.has_warned:
            self.has_warned = True
            logger.warning(
                "The audit event %s was dropped, and others will be: the code around it is not audited. Decorate it "
                "with pikku_storage.audit.audited.",
                type,
            )

    async def anote(
        self, type: str, metadata: Mapping[str, Json] | None = None, *, outcome: Outcome | None = "success"
    ) -> None:
        """As `note`."""
        self.note(type, metadata, outcome=outcome)


_unaudited = _Unaudited()


def current_audit() -> Audit | _Unaudited:
    """The audit of the work that goes on. Outside of any its `note` drops what it is told, with one warning."""
    return _current.get() or _unaudited


@overload
def audited(type: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def audited(
    type: str = INVOKED, /, *, actor: Callable[..., Any] | None = None, **options: Any
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def audited(
    type: Callable[..., Any] | str = INVOKED, /, *, actor: Callable[..., Any] | None = None, **options: Any
) -> Any:
    """Audits each call of a function, sync or async: `@audited`, or `@audited("order.refunded", actor=…)`.

    `actor` is called with the function's arguments, and says who acts. The `options` are those of `audit_context`.
    """
    if not isinstance(type, str):
        return _decorated(type, INVOKED, None, {})
    return partial(_decorated, type=type, actor=actor, options=options)


def _decorated(function: Callable[..., Any], type: str, actor: Callable[..., Any] | None, options: Any) -> Any:
    given = {"function_id": f"{function.__module__}.{function.__qualname__}", **options}

    def around(args: Any, keywords: Any) -> Audit:
        return Audit(type, actor=None if actor is None else actor(*args, **keywords), **given)

    if iscoroutinefunction(function):

        @wraps(function)
        async def run(*args: Any, **keywords: Any) -> Any:
            async with around(args, keywords):
                return await function(*args, **keywords)

        return run

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        with around(args, keywords):
            return function(*args, **keywords)

    return call


def _outcome_of(error: BaseException | None) -> Outcome:
    if error is None:
        return "success"
    is_refusal = isinstance(error, PermissionError | PermissionDenied) or getattr(error, "http_status", None) == 403
    return "denied" if is_refusal else "failed"
