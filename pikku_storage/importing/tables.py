"""The tables of the TypeScript packages, in the order of their foreign keys, and what becomes of a row of each
(contract tables.md §3).

A column of theirs is kept in the field of that name. What else there is to say stands with the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from django.apps import apps
from django.db import models

from pikku_storage.conf import APP_LABELS
from pikku_storage.importing.sources.base import Row, Source
from pikku_storage.importing.values import BadValueError, value_of
from pikku_storage.workflows.engine.imported import hold
from pikku_storage.workflows.models import WorkflowStepHistory
from pikku_storage.workflows.querysets import with_wire_type

Values: TypeAlias = dict[str, Any]
"""Of a row of ours, by attribute names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of theirs.

    * `part`: what it belongs to, for `--only`.
    * `label`: our model's, such as `workflows.WorkflowRun`.
    * `key`: the columns that are its key there; `columns`: the others.
    * `ours`: adds what the row has here and not there, and changes what cannot stay.
    * `prepare`: makes the rows that are read the rows that are meant.
    * `fetch`: adds to a batch of rows what the source has elsewhere.
    * `adopt`: changes a row that is about to be written by the values of the row that it belongs to, of which it is
      given `parent_columns`.
    * `sealed_by`: the table of the salts without which the row cannot be opened.
    """

    name: str
    part: str
    label: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    ours: Callable[[Values], None] = lambda values: None
    prepare: Callable[[Iterator[Row]], Iterator[Row]] = iter
    fetch: Callable[[Source, Sequence[Row]], None] = lambda source, rows: None
    adopt: Callable[[Values, Mapping[str, Any]], None] | None = None
    parent_columns: tuple[str, ...] = ()
    sealed_by: str | None = None

    @property
    def model(self) -> type[models.Model] | None:
        """Our model; `None` if its app is not installed."""
        app, _, name = self.label.partition(".")
        label = f"{APP_LABELS}{app}"
        return apps.get_model(label, name) if label in apps.app_configs else None

    def values(self, row: Row, *, json_is_text: bool) -> Values:
        """The row of ours for a row of theirs, with every field. Raises `BadValueError`, which names the column."""
        model = self.model
        assert model is not None  # noqa: S101 - nobody asks for a row that has no place
        fields = fields_of(model)
        values: Values = {}
        for column in (*self.key, *self.columns):
            if column not in fields:
                continue
            try:
                values[fields[column].attname] = value_of(fields[column], row.get(column), json_is_text=json_is_text)
            except BadValueError as error:
                raise BadValueError(f"{column}: {error}") from None
        self.ours(values)
        for each in model._meta.concrete_fields:
            if values.get(each.attname) is None:
                values[each.attname] = each.get_default() if each.has_default() and not each.null else None
            if values[each.attname] is None and not each.null:
                raise BadValueError(f"{_column(each)}: it is missing")
        return values

    def left_out(self, row: Row) -> Iterator[str]:
        """The columns with a value that have no place here."""
        model = self.model
        assert model is not None  # noqa: S101 - as above
        places = fields_of(model)
        for column, value in row.items():
            if value is not None and (column not in (*self.key, *self.columns) or column not in places):
                yield column

    def show(self, row: Row) -> str:
        """Which row it is, for a message: its key, never its content."""
        text = ", ".join(f"{row.get(column)!s:.80}" for column in self.key)
        # It may be no text that a terminal can show.
        return text.encode("utf-8", "backslashreplace").decode()


def fields_of(model: type[models.Model]) -> dict[str, models.Field[Any, Any]]:
    """The fields of a model by their names in the contract, which are those of its columns in SQL."""
    return {_column(each): each for each in model._meta.concrete_fields}


def _column(each: models.Field[Any, Any]) -> str:
    return each.db_column or each.attname


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# -- runs --------------------------------------------------------------------------------------------------------------


def _run(values: Values) -> None:
    wire = values["wire"] if isinstance(values["wire"], dict) else {}
    values["owner_id"], values["parent_run_id"] = (_id(wire.get(name)) for name in ("pikkuUserId", "parentRunId"))
    values["wire_type"] = with_wire_type(values)["wire_type"]
    hold(values)


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 255 else None


def _step(values: Values) -> None:
    attempt = values["current_attempt"] = values["current_attempt"] or 1
    values["max_attempts"] = max((values["retries"] or 0) + 1, attempt)


def _count_attempts(source: Source, steps: Sequence[Row]) -> None:
    """MongoDB has no number: it is how many attempts there are."""
    name, key = "workflow_step_history", "workflow_step_id"
    uncounted = [row for row in steps if row.get("current_attempt") is None]
    if uncounted and name in source.tables():
        found = source.find(name, key, [row.get(key) for row in uncounted], (key,))
        counts = Counter(str(row[key]) for row in found)
        for row in uncounted:
            row["current_attempt"] = counts[str(row.get(key))] or None


def _number_attempts(rows: Iterator[Row]) -> Iterator[Row]:
    """Attempts of a step have numbers of their own, or else they are counted in the order they were made."""
    for _, group in groupby(rows, lambda row: row.get("workflow_step_id")):
        attempts = list(group)
        numbers = {number for row in attempts if isinstance(number := row.get("attempt"), int)}
        if len(numbers) < len(attempts):
            attempts.sort(key=lambda row: (_sortable(row.get("created_at")), str(row.get("history_id"))))
            attempts = [{**row, "attempt": number} for number, row in enumerate(attempts, 1)]
        yield from attempts


def _sortable(given: Any) -> float:
    moment = models.DateTimeField()
    try:
        value = value_of(moment, given, json_is_text=True)
    except BadValueError:
        return 0.0
    return 0.0 if value is None else float(value.timestamp())


def _attempt(values: Values) -> None:
    if values["step_id"] is not None:
        # The engine finds an attempt by this id; nothing refers to the one it had.
        values["id"] = WorkflowStepHistory.id_of(values["step_id"], values["attempt"])


def _with_the_step(attempt: Values, step: Mapping[str, Any]) -> None:
    """There, an attempt stays pending while its step is scheduled."""
    is_open = attempt["status"] == "pending" and attempt["attempt"] == step["current_attempt"]
    if is_open and step["status"] == "scheduled":
        attempt["status"] = step["status"]


# -- the rest ----------------------------------------------------------------------------------------------------------


def _key_of(label: str, key: str, *columns: str) -> Callable[[Values], None]:
    """Makes our key, which is derived from the columns that are the key there."""

    def ours(values: Values) -> None:
        app, _, name = label.partition(".")
        model: Any = apps.get_model(f"{APP_LABELS}{app}", name)
        parts = [values[column] for column in columns]
        values[key] = None if None in parts else getattr(model, f"{key}_of")(*parts)

    return ours


def _credential(values: Values) -> None:
    from pikku_storage.secrets.models import Credential

    # There an empty user id is none.
    values["user_id"] = values["user_id"] or None
    if values["name"] is not None:
        values["id"] = Credential.id_of(values["name"], values["user_id"])


def _channel(values: Values) -> None:
    values["opening_data"] = {} if values["opening_data"] is None else values["opening_data"]


def _tool_call(values: Values) -> None:
    if values["approval_status"] is not None:
        values["approval_asked_at"] = values["created_at"]


def _delivery(values: Values) -> None:
    """What was sent is not kept there, so nothing can be sent any more."""
    if values["status"] == "pending":
        values["status"] = "failed"
    attempts = values["attempts"] or 0
    values.update(body="", retries=0, max_attempts=attempts)


def _functions(source: Source, deployments: Sequence[Row]) -> None:
    """In SQL the functions of a deployment have a table of their own."""
    name, key = "pikku_deployment_functions", "deployment_id"
    if name not in source.tables():
        return
    served: dict[str, list[str]] = {}
    for row in source.find(name, key, [row[key] for row in deployments], (key, "function_name")):
        served.setdefault(str(row[key]), []).append(row["function_name"])
    for row in deployments:
        row["functions"] = sorted(served.get(str(row[key]), []))


def _schedule(values: Values) -> None:
    values["enabled"] = False


TABLES: tuple[Table, ...] = (
    Table(
        name="channels",
        part="channels",
        label="channels.Channel",
        key=("channel_id",),
        columns=_words("channel_name created_at opening_data pikku_user_id state last_wire"),
        ours=_channel,
    ),
    Table(
        name="channel_subscriptions",
        part="channels",
        label="channels.ChannelSubscription",
        key=("channel_id", "topic"),
        columns=(),
        ours=_key_of("channels.ChannelSubscription", "key", "channel_id", "topic"),
    ),
    Table(
        name="pikku_user_sessions",
        part="sessions",
        label="access.UserSession",
        key=("pikku_user_id",),
        columns=_words("session created_at updated_at"),
    ),
    Table(
        name="secret_kek_salts",
        part="secrets",
        label="secrets.SecretKekSalt",
        key=("key_version",),
        columns=_words("salt created_at"),
    ),
    Table(
        name="secrets",
        part="secrets",
        label="secrets.Secret",
        key=("key",),
        columns=_words("ciphertext wrapped_dek key_version created_at updated_at"),
        sealed_by="secret_kek_salts",
    ),
    Table(
        name="secrets_audit",
        part="secrets",
        label="secrets.SecretAudit",
        key=("id",),
        columns=_words("secret_key action performed_at"),
    ),
    Table(
        name="credential_kek_salts",
        part="credentials",
        label="secrets.CredentialKekSalt",
        key=("key_version",),
        columns=_words("salt created_at"),
    ),
    Table(
        name="credentials",
        part="credentials",
        label="secrets.Credential",
        key=("name", "user_id"),
        columns=_words("ciphertext wrapped_dek key_version created_at updated_at"),
        ours=_credential,
        sealed_by="credential_kek_salts",
    ),
    Table(
        name="credentials_audit",
        part="credentials",
        label="secrets.CredentialAudit",
        key=("id",),
        columns=_words("credential_name user_id action performed_at"),
    ),
    Table(
        name="pikku_deployments",
        part="deployments",
        label="deployments.Deployment",
        key=("deployment_id",),
        columns=_words("endpoint functions last_heartbeat created_at"),
        fetch=_functions,
    ),
    Table(
        name="webhook_delivery",
        part="webhooks",
        label="webhooks.WebhookDelivery",
        key=("delivery_id",),
        columns=_words("organization_id url event status attempts created_at updated_at delivered_at"),
        ours=_delivery,
    ),
    Table(
        name="webhook_delivery_attempt",
        part="webhooks",
        label="webhooks.WebhookDeliveryAttempt",
        key=("attempt_id",),
        columns=_words("delivery_id attempt_number status_code response_body error created_at"),
    ),
    Table(
        name="workflow_versions",
        part="workflows",
        label="workflows.WorkflowVersion",
        key=("workflow_name", "graph_hash"),
        columns=_words("graph source status created_at"),
        ours=_key_of("workflows.WorkflowVersion", "id", "workflow_name", "graph_hash"),
    ),
    Table(
        name="workflow_runs",
        part="workflows",
        label="workflows.WorkflowRun",
        key=("workflow_run_id",),
        columns=_words(
            "workflow status input output error state inline graph_hash deterministic planned_steps wire created_at "
            "updated_at"
        ),
        ours=_run,
    ),
    Table(
        name="workflow_step",
        part="workflows",
        label="workflows.WorkflowStep",
        key=("workflow_step_id",),
        columns=_words(
            "workflow_run_id step_name rpc_name data status result error child_run_id branch_taken retries retry_delay "
            "from_step_name current_attempt created_at updated_at"
        ),
        fetch=_count_attempts,
        ours=_step,
    ),
    Table(
        name="workflow_step_history",
        part="workflows",
        label="workflows.WorkflowStepHistory",
        # Attempts of a step come one after the other.
        key=("workflow_step_id", "history_id"),
        columns=_words(
            "status result error attempt created_at running_at scheduled_at succeeded_at failed_at",
        ),
        prepare=_number_attempts,
        ours=_attempt,
        adopt=_with_the_step,
        parent_columns=("status", "current_attempt"),
    ),
    Table(
        name="agent_threads",
        part="agents",
        label="agents.AgentThread",
        key=("id",),
        columns=_words("resource_id title metadata created_at updated_at"),
    ),
    Table(
        name="agent_message",
        part="agents",
        label="agents.AgentMessage",
        key=("id",),
        columns=_words("thread_id role content created_at"),
    ),
    Table(
        name="agent_run",
        part="agents",
        label="agents.AgentRun",
        key=("run_id",),
        columns=_words(
            "agent_name thread_id resource_id status error_message suspend_reason missing_rpcs pending_approvals "
            "usage_input_tokens usage_output_tokens usage_model created_at updated_at"
        ),
    ),
    Table(
        name="agent_tool_call",
        part="agents",
        label="agents.AgentToolCall",
        key=("id",),
        columns=_words(
            "thread_id message_id run_id tool_name args result approval_status approval_type agent_run_id "
            "display_tool_name display_args created_at"
        ),
        ours=_tool_call,
    ),
    Table(
        name="agent_working_memory",
        part="agents",
        label="agents.AgentWorkingMemory",
        key=("id", "scope"),
        columns=_words("data updated_at"),
        ours=_key_of("agents.AgentWorkingMemory", "key", "memory_id", "scope"),
    ),
    Table(
        name="agent_run_score",
        part="agents",
        label="agents.AgentRunScore",
        key=("id",),
        columns=_words("run_id scorer_name score reason metadata created_at"),
    ),
    Table(
        name="pikku_scopes",
        part="scopes",
        label="access.Scope",
        key=("name",),
        columns=_words("description declared"),
    ),
    Table(
        name="pikku_roles",
        part="scopes",
        label="access.Role",
        key=("name",),
        columns=_words("description system declared created_at"),
    ),
    Table(
        name="pikku_role_scopes",
        part="scopes",
        label="access.RoleScope",
        key=("role", "scope"),
        columns=(),
        ours=_key_of("access.RoleScope", "id", "role_id", "scope_id"),
    ),
    Table(
        name="pikku_user_role",
        part="scopes",
        label="access.UserRole",
        key=("user_id", "role"),
        columns=_words("granted_by granted_at"),
        ours=_key_of("access.UserRole", "id", "user_id", "role_id"),
    ),
    Table(
        name="pikku_user_scope",
        part="scopes",
        label="access.UserScope",
        key=("user_id", "scope"),
        columns=_words("granted_by granted_at"),
        ours=_key_of("access.UserScope", "id", "user_id", "scope_id"),
    ),
    Table(
        name="audit",
        part="audit",
        label="audit.AuditEntry",
        key=("audit_id",),
        columns=_words(
            "occurred_at type source outcome function_id wire_type trace_id transaction_id query_id user_id org_id "
            "pikku_user_id tables changed_cols event old data"
        ),
    ),
    Table(
        name="virtual_user_run",
        part="virtual-users",
        label="virtual_users.VirtualUserRun",
        key=("run_id",),
        columns=_words(
            "persona disposition seed status goals memory findings intents tally stopped_by error started_by "
            "created_at finished_at"
        ),
    ),
    Table(
        name="virtual_user_run_step",
        part="virtual-users",
        label="virtual_users.VirtualUserRunStep",
        key=("run_id", "step_index"),
        columns=_words("intent_id action status ok response finding_kinds tokens_in tokens_out"),
        ours=_key_of("virtual_users.VirtualUserRunStep", "key", "run_id", "step_index"),
    ),
    Table(
        name="virtual_user_schedule",
        part="virtual-users",
        label="virtual_users.VirtualUserSchedule",
        key=("persona",),
        columns=_words(
            "enabled disposition goals budget min_interval_ms max_interval_ms next_run_at last_run_id last_run_at"
        ),
        ours=_schedule,
    ),
)
PARTS: tuple[str, ...] = tuple(sorted({table.part for table in TABLES}))
BY_NAME: Mapping[str, Table] = {table.name: table for table in TABLES}


def tables_of(parts: Iterable[str] | None) -> list[Table]:
    """The tables of these parts, or all of them, those that others belong to before them."""
    wanted = set(PARTS if parts is None else parts)
    return [table for table in TABLES if table.part in wanted]
