"""What a workflow's body is given: every call is a durable step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, overload

from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import PayloadError, RPCNotFoundError, WorkflowInputError
from pikku_storage.json import Json, to_json_object
from pikku_storage.retry import RetryPolicy
from pikku_storage.schemas import SchemaSource
from pikku_storage.workflows.compensation import COMPENSATION_ARGUMENTS
from pikku_storage.workflows.definitions import BaseWorkflow, FunctionDefinition, arguments_of, to_timeout
from pikku_storage.workflows.engine import children, gates
from pikku_storage.workflows.engine.attempts import Target
from pikku_storage.workflows.engine.replay import Call, Replay, target_of
from pikku_storage.workflows.errors import RPC_NOT_FOUND, at_step
from pikku_storage.workflows.policies import Approvers
from pikku_storage.workflows.records import ApprovalOutcome
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.wire import fire_time_of

T = TypeVar("T")
StepFunction: TypeAlias = "FunctionDefinition[..., T] | BaseWorkflow | Callable[..., T] | str"
GatherItem: TypeAlias = "tuple[str, StepFunction[Any], Mapping[str, Any]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    on_error: FunctionDefinition[..., Any] | None = None
    retries: int | None = None
    retry_delay: Duration | None = None
    timeout: Duration | None = None
    group: str | None = None


class Flow:
    """One pass through a workflow's body. Steps are named; reaching a name again makes `name#1`, `name#2`."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._state_set: dict[str, Json] = {}
        self._patches: dict[str, bool] = {}

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._replay.run.id

    @property
    def owner_id(self) -> str | None:
        """The owner of the run."""
        return self._replay.run.owner_id

    @property
    def fire_time(self) -> datetime | None:
        """The time for which a schedule started the run, in the schedule's time zone; `None` if none did.

        A run that is late, caught up or backfilled has the time that it is for, and every pass the same.
        """
        return fire_time_of(self._replay.run.wire)

    @overload
    def do(
        self,
        name: str,
        function: FunctionDefinition[..., T] | Callable[..., T],
        data: Mapping[str, Any] | None = None,
        *,
        on_error: FunctionDefinition[..., Any] | None = None,
        retries: int | None = None,
        retry_delay: Duration | None = None,
        timeout: Duration | None = None,
    ) -> T: ...

    @overload
    def do(
        self,
        name: str,
        function: BaseWorkflow | str,
        data: Mapping[str, Any] | None = None,
        *,
        on_error: FunctionDefinition[..., Any] | None = None,
        retries: int | None = None,
        retry_delay: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Any: ...

    def do(
        self,
        name: str,
        function: StepFunction[Any],
        data: Mapping[str, Any] | None = None,
        *,
        on_error: FunctionDefinition[..., Any] | None = None,
        retries: int | None = None,
        retry_delay: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Carry out a step and answer with its result.

        `function` is a `@function`, its name, or any plain callable (which then always runs where the run runs); `data`
        becomes its keyword arguments. `retries`, `retry_delay` and `timeout` override the function's own. `on_error`
        runs once, as the step `<name>:onError`, if the step failed for good, and is given `error`, `input` and
        `invocation_id` of what it compensates.

        Raises `WorkflowStepFailedError` for a step that failed for good, `WorkflowInputError` and `PayloadError` for
        data that does not fit, `WorkflowStepNameNotString`.
        """
        options = _Options(on_error=on_error, retries=retries, retry_delay=retry_delay, timeout=timeout)
        return self._replay.settle(
            [self._call(self._replay.next_name(name), function, {} if data is None else data, options)]
        )[0]

    def map(
        self,
        name: str,
        function: StepFunction[T],
        items: Iterable[Any],
        *,
        on_error: FunctionDefinition[..., Any] | None = None,
        retries: int | None = None,
        retry_delay: Duration | None = None,
        timeout: Duration | None = None,
    ) -> list[T]:
        """One step per item (`name[0]`, `name[1]`, …), spread over the workers; the results in the items' order.

        Each item is a JSON object that becomes the function's keyword arguments; any other item becomes the function's
        only argument. All items are carried to their end before the first failure is raised. Otherwise as `do`.
        """
        base = self._replay.next_name(name)
        options = _Options(on_error=on_error, retries=retries, retry_delay=retry_delay, timeout=timeout, group=base)
        return self._replay.settle(
            [
                self._call(self._replay.next_name(f"{base}[{index}]"), function, item, options)
                for index, item in enumerate(items)
            ]
        )

    def gather(self, *steps: GatherItem) -> list[Any]:
        """Different steps side by side, each `(name, function, data)`; the results in the same order. Otherwise as
        `map`."""
        names = [self._replay.next_name(name) for name, _function, _data in steps]
        options = _Options(group=f"gather:{names[0]}" if names else None)
        return self._replay.settle(
            [
                self._call(name, function, data, options)
                for name, (_name, function, data) in zip(names, steps, strict=True)
            ]
        )

    def sleep(self, name: str, duration: Duration) -> None:
        """Wait; no worker is held meanwhile. `duration` is milliseconds, a text such as `"2h"`, or a `timedelta`."""
        try:
            milliseconds = to_milliseconds(duration)
        except ValueError as error:
            raise WorkflowInputError(f"The sleep {name!r}: {error}") from None
        self._replay.sleep(self._replay.next_name(name), milliseconds)

    def suspend(self, reason: str) -> None:
        """Stop the run here, `suspended`, until somebody resumes it. `reason` says to them what for."""
        gates.suspend(self._replay, reason)

    def approval(
        self,
        reason: str,
        schema: SchemaSource | None = None,
        *,
        expiry: Duration | None = None,
        approvers: Approvers = "any",
        approver_scope: str | None = None,
    ) -> ApprovalOutcome:
        """Ask a person, and wait for an answer that counts; no worker is held meanwhile.

        `reason` names the approval, and is what `run.approve` is given. `schema` says what the answer must look like: a
        Django form, a dataclass, a pydantic model or a JSON Schema (a dict). After `expiry`, the outcome is `expired`.
        `approvers` says who may answer: `any`, the run's `owner`, or anybody signed in who is `not-initiator`;
        `approver_scope` is needed in addition.

        Raises `WorkflowInputError` for an option that cannot be used, `WorkflowStepNameNotString`, and
        `WorkflowStepFailedError` for an approval whose step was failed by hand.
        """
        return gates.approval(self._replay, gates.Question.of(reason, schema, expiry, approvers, approver_scope))

    def patched(self, name: str) -> bool:
        """Whether this run takes the new way of a body that was changed while runs are under way.

        `True` for runs that come to this line for the first time, and for ever after; `False` for those that have steps
        recorded beyond it, which were made by the old code. Use one name per change. Raises
        `WorkflowStepNameNotString`.
        """
        if name not in self._patches:
            self._patches[name] = self._replay.patched(name)
        return self._patches[name]

    def set_state(self, key: str, value: Any) -> None:
        """Set one key of the run's state, for others to see. Written before the next step begins."""
        if not isinstance(key, str):
            raise WorkflowInputError(f"A state key is a text, not {key!r}")
        plain = to_json_object({key: value}, root="$state")[key]
        self._state_set[key] = self._replay.state_writes[key] = plain

    def get_state(self, key: str, default: Any = None) -> Any:
        """What this pass has set, else what is stored, else `default`.

        What is stored may change between passes: use it to show and to hand over, not to decide which steps to take.
        """
        if key in self._state_set:
            return self._state_set[key]
        return self._replay.stored_state.get(key, default)

    def _call(self, name: str, function: StepFunction[Any], data: Any, options: _Options) -> Call:
        try:
            return self._made_call(name, function, data, options)
        except PayloadError as error:
            raise at_step(name, PayloadError(error.path, f"{error.reason} (in the data of step {name!r})")) from None
        except ValueError as error:
            raise at_step(name, WorkflowInputError(f"Step {name!r}: {error}")) from None

    def _made_call(self, name: str, function: StepFunction[Any], data: Any, options: _Options) -> Call:
        if isinstance(function, str):
            function = self._named(function)
        if isinstance(function, BaseWorkflow):
            return self._workflow_call(name, function, data, options)
        if not callable(function):
            raise WorkflowInputError(f"{function!r} is neither a function nor the name of one")
        self._check_compensation(options.on_error)
        if isinstance(function, FunctionDefinition):
            plain = arguments_of(function.parameters, data)
            function.check(plain)
            target, policy = target_of(function), function.policy
            queue = self._replay.queue_of(function, in_group=options.group is not None)
        else:
            plain = arguments_of(_signature_of(function).parameters.values(), data)
            target, policy, queue = Target(func=function, rpc_name=None, timeout_ms=None), RetryPolicy(), None
        if options.timeout is not None:
            target = replace(target, timeout_ms=to_timeout(options.timeout))
        return Call(
            name=name,
            target=target,
            data=plain,
            policy=policy.overridden(options.retries, options.retry_delay),
            queue=queue,
            group=options.group,
            on_error=options.on_error,
        )

    def _workflow_call(self, name: str, definition: BaseWorkflow, data: Any, options: _Options) -> Call:
        self._check_compensation(options.on_error)
        plain = arguments_of(definition.parameters, data)
        children.check_call(
            self._replay.runtime, self._replay.run, definition, plain, has_timeout=options.timeout is not None
        )
        return Call(
            name=name,
            target=target_of(definition),
            data=plain,
            policy=definition.policy.overridden(options.retries, options.retry_delay),
            group=options.group,
            is_workflow=True,
            on_error=options.on_error,
        )

    def _check_compensation(self, on_error: object) -> None:
        if on_error is None:
            return
        if not isinstance(on_error, FunctionDefinition):
            raise WorkflowInputError(f"on_error takes a @function, not {on_error!r}")
        try:
            on_error.check(dict.fromkeys(COMPENSATION_ARGUMENTS))
        except WorkflowInputError as error:
            raise WorkflowInputError(f"on_error: {error}") from None

    def _named(self, name: str) -> FunctionDefinition[..., Any] | BaseWorkflow:
        try:
            return registry.workflows.get(name) or registry.function(name)
        except RPCNotFoundError as error:
            self._replay.suspend(RPC_NOT_FOUND, str(error))


def _signature_of(func: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(func)
    except (TypeError, ValueError):
        return inspect.Signature()
