"""`@workflow` and `@function`: plain Python functions that the engine can run durably."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property, update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    overload,
)

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import PayloadError, WorkflowInputError, WorkflowRegistrationError
from pikku_storage.json import Json, to_json, to_json_object, to_text
from pikku_storage.retry import RetryPolicy
from pikku_storage.workflows.limits import (
    Deadline,
    KeyFunction,
    Limits,
    Priority,
    call_with,
    check_priority,
    deadline_of,
    key_of,
    parameters_of,
)
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.declarations import NAME_LENGTH as SCHEDULE_NAME_LENGTH
from pikku_storage.workflows.schedules.declarations import Declaration

if TYPE_CHECKING:
    from pikku_storage.workflows.flow import Flow
    from pikku_storage.workflows.handle import WorkflowRunHandle
    from pikku_storage.workflows.service import WorkflowService

P = ParamSpec("P")
R = TypeVar("R")

Versioning: TypeAlias = Literal["auto-upgrade", "pinned"]
"""What becomes of a run whose workflow's body is changed: it goes on with the new one, or waits for the old one."""

HttpAccess: TypeAlias = bool | str
"""Whether a workflow is served over HTTP, and the permission that starting it needs."""

NAME_LENGTH = 255
STEP_NAME_LENGTH = NAME_LENGTH - 32
"""Leaves room for `#n`, `[i]` and the compensation's suffix."""
_NAMED = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
_ANY_KEYWORD = {*_NAMED, inspect.Parameter.VAR_KEYWORD}


class _Definition(Generic[P, R]):
    """What functions and workflows share: a name, the Python function, and how data becomes its keyword arguments."""

    kind = "function"
    skipped_parameters = 0

    def __init__(self, func: Callable[..., Any], name: str | None) -> None:
        if not inspect.isfunction(func):
            raise WorkflowRegistrationError(f"@{self.kind} takes a plain function, not {func!r}")
        self.func = func
        try:
            self.name = to_text(func.__name__ if name is None else name, root="name", longest=NAME_LENGTH)
        except PayloadError as error:
            raise WorkflowRegistrationError(
                f"{self.source_place}: {name!r:.80} is no name: it {error.reason}"
            ) from None
        self.signature = inspect.signature(func)
        self.parameters: Sequence[inspect.Parameter] = list(self.signature.parameters.values())[
            self.skipped_parameters :
        ]
        for parameter in self.parameters:
            if parameter.kind not in _ANY_KEYWORD:
                raise WorkflowRegistrationError(
                    f"{self.source_place}: the parameter {parameter} cannot be passed by keyword, "
                    "which is how data reaches it"
                )
        update_wrapper(cast("Any", self), func)

    @cached_property
    def source_place(self) -> str:
        """Where the function stands: module, qualified name and line."""
        return f"{self.func.__module__}.{self.func.__qualname__} (line {self.func.__code__.co_firstlineno})"

    @property
    def is_closure(self) -> bool:
        """Whether it depends on values around it, which its lines do not show."""
        return bool(self.func.__closure__)

    def check(self, data: Mapping[str, Any]) -> None:
        """Raise `WorkflowInputError` unless `data` fits the parameters."""
        names = {parameter.name for parameter in self.parameters if parameter.kind is not parameter.VAR_KEYWORD}
        open_ended = len(names) < len(self.parameters)
        missing = [
            parameter.name
            for parameter in self.parameters
            if parameter.name in names and parameter.default is parameter.empty and parameter.name not in data
        ]
        own = list(self.signature.parameters)[: self.skipped_parameters]
        surplus = [name for name in data if name in own or not (open_ended or name in names)]
        problems = [
            f"{label} {', '.join(repr(name) for name in found)}"
            for label, found in (("missing", missing), ("unexpected", surplus))
            if found
        ]
        if problems:
            raise WorkflowInputError(
                f"The data of {self.kind} {self.name!r} does not fit {self.name}{self._signature_text()}: "
                + "; ".join(problems)
            )

    def _signature_text(self) -> str:
        return f"({', '.join(str(_unquoted(parameter)) for parameter in self.parameters)})"

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class _Unquoted:
    """An annotation that is text, because its module postpones evaluation, shown as it was written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _unquoted(parameter: inspect.Parameter) -> inspect.Parameter:
    if isinstance(parameter.annotation, str):
        return parameter.replace(annotation=_Unquoted(parameter.annotation))
    return parameter


class FunctionDefinition(_Definition[P, R]):
    """A step function. Calling it calls the Python function, so it stays easy to test."""

    def __init__(
        self,
        func: Callable[P, R],
        *,
        name: str | None = None,
        retries: int | None = None,
        retry_delay: Duration | None = None,
        timeout: Duration | None = None,
        queued: bool = False,
        queue: str | None = None,
        remote: bool = False,
    ) -> None:
        super().__init__(func, name)
        self.policy = _policy(self.source_place, retries, retry_delay)
        self.timeout_ms = None if timeout is None else _timeout(self.source_place, timeout)
        self.queued = queued or queue is not None
        self.queue = queue
        self.remote = remote
        self._stand_in: Callable[..., Any] | None = None

    @property
    def implementation(self) -> Callable[..., Any]:
        """What a step calls: the Python function, unless a test has put something in its place."""
        return self.func if self._stand_in is None else self._stand_in

    @contextmanager
    def replaced_by(self, stand_in: Callable[..., Any]) -> Iterator[None]:
        """For tests: whoever calls this function calls `stand_in` inside the block. Options and signature stay."""
        before, self._stand_in = self._stand_in, stand_in
        try:
            yield
        finally:
            self._stand_in = before

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the Python function, outside of any run."""
        result: R = self.implementation(*args, **kwargs)
        return result


class BaseWorkflow(AsyncTwins, ABC):
    """What runs are of, a body or a graph: `start` queues a run, `run` carries one out here and now."""

    name: str
    version_source: ClassVar[str]
    """What stored versions are made from (contract tables.md, `workflow_versions.source`)."""
    policy: ClassVar = RetryPolicy(retries=0)
    """Of a step that a run of it does. What a run has done is seldom put right by doing all of it again."""
    parameters: Sequence[inspect.Parameter] = ()
    """Of a body, without the flow."""
    entries: tuple[str, ...] = ()
    """The nodes that a run of a graph can begin with."""
    http: HttpAccess = False
    """Whether it can be reached over HTTP, and the permission that starting it takes."""
    schedule: Declaration | None = None
    """The times at which its code says that it starts."""
    limits: Limits | None = None
    priority: Priority | None = None
    deadline: Deadline | None = None
    """What its code says about flow control."""

    @property
    @abstractmethod
    def source_place(self) -> str:
        """Where it stands: module, qualified name and line."""

    @property
    @abstractmethod
    def graph_hash(self) -> str:
        """The version."""

    @property
    @abstractmethod
    def graph(self) -> dict[str, Any]:
        """What a stored version keeps of the definition."""

    @property
    def is_closure(self) -> bool:
        """Whether it depends on values around it, which its lines do not show."""
        return False

    @abstractmethod
    def check(self, data: Mapping[str, Any]) -> None:
        """Raise `WorkflowInputError` unless a run can have `data` as its input."""

    def _check_flow_control(self) -> None:
        try:
            if self.limits is not None and not isinstance(self.limits, Limits):
                raise ValueError(f"limits is a Limits(…), not {self.limits!r}")
            if self.deadline is not None:
                deadline_of(self.deadline, datetime.now(UTC))
            if self.priority is not None and not callable(self.priority):
                check_priority(self.priority)
            for function in self._input_functions().values():
                self._check_input_function(function)
        except ValueError as error:
            raise WorkflowRegistrationError(f"{self.source_place}: {error}") from None

    def _input_functions(self) -> dict[str, Callable[..., Any]]:
        """What is computed from the input when a run is started."""
        limits = self.limits or Limits()
        functions: dict[str, KeyFunction | Priority | None] = {
            "concurrency_key": limits.concurrency_key,
            "rate_limit_key": limits.rate_limit_key,
            "priority": self.priority,
        }
        return {name: function for name, function in functions.items() if callable(function)}

    def _check_input_function(self, function: Callable[..., Any]) -> None:
        own = {parameter.name for parameter in self.parameters}
        is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.parameters)
        for name, parameter in parameters_of(function)[0].items():
            if parameter.kind not in _ANY_KEYWORD:
                raise ValueError(f"a function of the input takes keyword arguments; {parameter} is none")
            if parameter.default is parameter.empty and name not in own and not is_open:
                raise ValueError(f"a function of the input asks for {name!r}, which is no parameter of the workflow")

    def start(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        owner: Any = None,
        idempotency_key: str | None = None,
        trigger: str = "code",
        priority: int | None = None,
        deadline: Deadline | None = None,
        using: str | None = None,
    ) -> WorkflowRunHandle:
        """Store a run and hand it to the workers; answers at once. `data` becomes the body's keyword arguments.

        `owner` is a user, or any id as text. A second start with the same `idempotency_key` answers with the first
        one's run. `priority` (1 last, 9 first) and `deadline` (a duration, or an aware time) override the workflow's. A
        broker that is down loses nothing: the relay sends the message later. Raises `WorkflowInputError` or
        `PayloadError` before anything is stored.
        """
        return self._service(using).start_workflow(
            self.name,
            {} if data is None else data,
            owner=owner,
            idempotency_key=idempotency_key,
            trigger=trigger,
            priority=priority,
            deadline=deadline,
        )

    def run(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        owner: Any = None,
        idempotency_key: str | None = None,
        trigger: str = "code",
        priority: int | None = None,
        deadline: Deadline | None = None,
        using: str | None = None,
    ) -> WorkflowRunHandle:
        """Carry out a run in this process, to its end; needs no broker and no worker. Sleeps, retry delays and limits
        are really waited for.

        Answers with the handle also when the run failed; `handle.result()` raises then.
        """
        return self._service(using).run_inline(
            self.name,
            {} if data is None else data,
            owner=owner,
            idempotency_key=idempotency_key,
            trigger=trigger,
            priority=priority,
            deadline=deadline,
        )

    def flow_control(
        self, data: Mapping[str, Any], *, at: datetime, priority: int | None = None, deadline: Deadline | None = None
    ) -> dict[str, Any]:
        """What a run that is started with this data keeps for flow control. `priority` and `deadline` override the
        definition's. Raises `WorkflowInputError`, also for whatever a function of the input raises."""
        defaults = {each.name: each.default for each in self.parameters if each.default is not each.empty}
        values = {**defaults, **data}
        deadline = self.deadline if deadline is None else deadline
        limits = self.limits or Limits()
        try:
            if priority is None:
                priority = call_with(self.priority, values) if callable(self.priority) else self.priority
            return {
                "priority": None if priority is None else check_priority(priority),
                "deadline_at": None if deadline is None else deadline_of(deadline, at),
                "concurrency_key": key_of("concurrency_key", limits.concurrency_key, values),
                "rate_limit_key": key_of("rate_limit_key", limits.rate_limit_key, values),
            }
        except Exception as error:
            raise WorkflowInputError(f"Flow control of workflow {self.name!r}: {error}") from error

    def _service(self, using: str | None) -> WorkflowService:
        # Models exist only once the apps are ready, and definitions are imported before.
        from pikku_storage.workflows.service import WorkflowService

        return WorkflowService(using=using)


class WorkflowDefinition(_Definition[P, Any], BaseWorkflow):
    """A workflow that is a function."""

    kind = "workflow"
    skipped_parameters = 1
    version_source = "complex"

    def __init__(
        self,
        body: Callable[Concatenate[Flow, P], Any],
        *,
        name: str | None = None,
        versioning: Versioning = "auto-upgrade",
        http: HttpAccess = False,
        schedule: str | None = None,
        timezone: str | None = None,
        catch_up: str = "latest",
        overlap: str = "allow",
        limits: Limits | None = None,
        priority: Priority | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        super().__init__(body, name)
        if versioning not in get_args(Versioning):
            raise WorkflowRegistrationError(
                f"{self.source_place}: versioning is one of {', '.join(get_args(Versioning))}; not {versioning!r}"
            )
        self.versioning = versioning
        self.http = _http_access(self, http)
        if inspect.iscoroutinefunction(body):
            raise WorkflowRegistrationError(
                f"{self.source_place}: a workflow's body is a plain def; its step functions may be async def"
            )
        if not self.signature.parameters:
            raise WorkflowRegistrationError(f"{self.source_place}: a workflow's first parameter is the flow")
        self.schedule = None if schedule is None else self._declared(schedule, timezone, catch_up, overlap)
        if schedule is None and (timezone is not None or (catch_up, overlap) != ("latest", "allow")):
            raise WorkflowRegistrationError(f"{self.source_place}: timezone, catch_up and overlap go with a schedule")
        self.limits, self.priority, self.deadline = limits, priority, deadline
        self._check_flow_control()

    def _declared(self, cron: str, timezone: str | None, catch_up: str, overlap: str) -> Declaration:
        try:
            to_text(self.name, root="name", longest=SCHEDULE_NAME_LENGTH)
            return Declaration.of(cron, timezone, catch_up, overlap)
        except ValueError as error:
            raise WorkflowRegistrationError(f"{self.source_place}: {error}") from None

    @cached_property
    def source(self) -> str:
        """The body's source text; empty where there is none (a REPL)."""
        try:
            return textwrap.dedent(inspect.getsource(self.func))
        except (OSError, TypeError):
            return ""

    @cached_property
    def graph_hash(self) -> str:
        """The version: a hash of what the body does. Comments, layout and docstrings do not change it."""
        return hashlib.sha256(f"{self.name}\n{self._normal_form()}".encode()).hexdigest()[:32]

    def _normal_form(self) -> str:
        try:
            tree = ast.parse(self.source)
        except SyntaxError:
            tree = ast.Module([], [])
        if not tree.body or not isinstance(tree.body[0], ast.FunctionDef):
            code = self.func.__code__
            constants = [constant for constant in code.co_consts if not inspect.iscode(constant)]
            return repr((code.co_code, code.co_names, constants))
        body = tree.body[0]
        if ast.get_docstring(body) is not None:
            body.body = body.body[1:]
        body.decorator_list = []
        return ast.unparse(body)

    @property
    def graph(self) -> dict[str, Any]:
        """What a stored version keeps of the definition."""
        return {"name": self.name, "parameters": self._signature_text(), "source": self.source}


def _http_access(definition: WorkflowDefinition[Any], http: HttpAccess) -> HttpAccess:
    is_permission = isinstance(http, str) and all(http.partition("."))
    if not (isinstance(http, bool) or is_permission):
        raise WorkflowRegistrationError(
            f'{definition.source_place}: http is True, False or a permission such as "shop.add_order"; not {http!r}'
        )
    if http and ("/" in definition.name or not definition.name.strip(".")):
        raise WorkflowRegistrationError(
            f"{definition.source_place}: {definition.name!r} cannot be a part of an address; give it another name=…"
        )
    return http


def arguments_of(parameters: Iterable[inspect.Parameter], value: Any) -> dict[str, Json]:
    """`value` as keyword arguments for these parameters: a JSON object is them, anything else is the only one. Raises
    `PayloadError`."""
    if isinstance(value, Mapping):
        return to_json_object(value, root="$data")
    named = [parameter.name for parameter in parameters if parameter.kind in _NAMED]
    if len(named) == 1:
        return {named[0]: to_json(value, root="$data")}
    raise PayloadError("$data", f"must be a JSON object (a dict) of keyword arguments, not {type(value).__name__}")


def _policy(place: str, retries: int | None, retry_delay: Duration | None) -> RetryPolicy:
    try:
        return RetryPolicy.of(retries, retry_delay)
    except ValueError as error:
        raise WorkflowRegistrationError(f"{place}: {error}") from None


def to_timeout(duration: Duration) -> int:
    """A time limit in milliseconds; raises `ValueError` for one that leaves no time at all."""
    milliseconds = to_milliseconds(duration)
    if not milliseconds:
        raise ValueError("a timeout of 0 leaves no time; leave it out for none")
    return milliseconds


def _timeout(place: str, duration: Duration) -> int:
    try:
        return to_timeout(duration)
    except ValueError as error:
        raise WorkflowRegistrationError(f"{place}: {error}") from None


@overload
def function(func: Callable[P, R], /) -> FunctionDefinition[P, R]: ...


@overload
def function(
    *,
    name: str | None = None,
    retries: int | None = None,
    retry_delay: Duration | None = None,
    timeout: Duration | None = None,
    queued: bool = False,
    queue: str | None = None,
    remote: bool = False,
) -> Callable[[Callable[P, R]], FunctionDefinition[P, R]]: ...


def function(func: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a `def` or `async def` a step function.

    * `name`: what messages and rows call it; the Python name by default.
    * `retries`: extra attempts after a failure, 5 by default.
    * `retry_delay`: a duration, or `"exponential"` (the default: 1 s, doubling to 10 min).
    * `timeout`: a duration after which an attempt fails with `STEP_TIMEOUT`.
    * `queued`: give each step its own message, so that any worker takes it. Otherwise a step runs where its run runs.
    * `queue`: the broker queue of those messages; implies `queued`.
    * `remote`: let other services call it, by `pikku_storage.deployments.urls`. The other options are of steps only.

    Raises `WorkflowRegistrationError`.
    """
    if func is None:
        return lambda decorated: _register_function(decorated, options)
    return _register_function(func, {})


def _register_function(func: Callable[..., Any], options: dict[str, Any]) -> FunctionDefinition[Any, Any]:
    definition = FunctionDefinition(func, **options)
    registry.add_function(definition)
    return definition


@overload
def workflow(body: Callable[Concatenate[Flow, P], Any], /) -> WorkflowDefinition[P]: ...


@overload
def workflow(
    *,
    name: str | None = None,
    versioning: Versioning = "auto-upgrade",
    http: HttpAccess = False,
    schedule: str | None = None,
    timezone: str | None = None,
    catch_up: str = "latest",
    overlap: str = "allow",
    limits: Limits | None = None,
    priority: Priority | None = None,
    deadline: Deadline | None = None,
) -> Callable[[Callable[Concatenate[Flow, P], Any]], WorkflowDefinition[P]]: ...


def workflow(body: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a `def` whose first parameter is the flow a workflow; the other parameters are its input.

    * `name`: what rows and messages call it; the Python name by default.
    * `versioning`: `"auto-upgrade"`, the default, lets runs go on with today's body; with `"pinned"` a run whose body
      was changed waits, suspended, for a worker that has the one it was started with.
    * `http`: `True` lets signed-in users start it and follow their runs over HTTP, where the project includes
      `pikku_storage.workflows.urls`; with a permission (`"shop.add_order"`) only those start it who have that. `False`,
      the default, gives it no address.
    * `schedule`: a cron expression; the relay starts a run at each of its times, with no input.
    * `timezone`: the IANA time zone of the expression, that of the project's settings by default.
    * `catch_up`: what is started for fires that were missed: `"latest"` one, `"all"` or `"skip"`.
    * `overlap`: `"skip"` starts no run while that of the fire before is live; `"allow"` does.
    * `limits`: how many of its runs may be inside at once, and how many may begin in a while.
    * `priority`: 1 (last) to 9 (first), or a function of the input; 5 by default.
    * `deadline`: how long after its start a run fails with `DEADLINE_EXCEEDED`.

    The body runs from the top each time the run is taken up, with recorded steps answering at once; so whatever it does
    besides calling steps must not depend on time, chance or the outside. Raises `WorkflowRegistrationError`.
    """

    def register(decorated: Callable[..., Any]) -> WorkflowDefinition[Any]:
        definition: WorkflowDefinition[Any] = WorkflowDefinition(decorated, **options)
        registry.add_workflow(definition)
        return definition

    return register if body is None else register(body)
