"""Stand-ins for step functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from typing import Any

from pikku_storage.exceptions import FinalError
from pikku_storage.workflows.context import StepContext, running_step
from pikku_storage.workflows.definitions import FunctionDefinition
from pikku_storage.workflows.registry import registry


class FakeExhaustedError(FinalError):
    """A fake was called more often than its `side_effect` has outcomes."""


class FakeFunction:
    """What stands in for a step function, and remembers how it was called.

    `calls` are the keyword arguments of each attempt, `steps` its context (`None` for a call outside of any step); both
    in the order of the calls.
    """

    def __init__(self, name: str, outcome: Callable[..., Any]) -> None:
        self.name = name
        self.calls: list[dict[str, Any]] = []
        self.steps: list[StepContext | None] = []
        self._outcome = outcome

    def __call__(self, **data: Any) -> Any:
        """Note the call, and do what was asked for."""
        self.calls.append(data)
        self.steps.append(running_step.get(None))
        return self._outcome(**data)

    def __repr__(self) -> str:
        return f"<FakeFunction {self.name}, called {len(self.calls)} times>"


class FakeFunctions:
    """Makes fakes, which last as long as the block of `faking()`."""

    def __init__(self, until: ExitStack) -> None:
        self._until = until

    def __call__(
        self,
        function: FunctionDefinition[..., Any] | str,
        *,
        returns: Any = None,
        raises: BaseException | type[BaseException] | None = None,
        side_effect: Callable[..., Any] | Iterable[Any] | None = None,
    ) -> FakeFunction:
        """Put a fake in the place of a `@function`, or of the one of that name, wherever it is called: in the run, as a
        queued step, in a fan-out, as a compensation, by hand. Options, such as `retries`, stay, and data must fit the
        real one's parameters.

        * `returns`: the result of every call.
        * `raises`: an exception, or a class of one, for every call.
        * `side_effect`: something to call with the same arguments; or the outcomes of one call after the other, where
          an exception is raised. A call too many fails the step at once.

        Raises `LookupError` for a name that nobody registered, and `ValueError` for more than one of the three.
        """
        if sum(given is not None for given in (returns, raises, side_effect)) > 1:
            raise ValueError("A fake takes one of returns, raises and side_effect")
        definition = function if isinstance(function, FunctionDefinition) else _registered(function)
        if side_effect is None:
            outcome = _always(returns if raises is None else raises)
        else:
            outcome = side_effect if callable(side_effect) else _one_by_one(definition.name, side_effect)
        fake = FakeFunction(definition.name, outcome)
        # A definition's parameters are keywords; a call by position, by hand, is given names here.
        self._until.enter_context(definition.replaced_by(_by_keyword(definition, fake)))
        return fake


@contextmanager
def faking() -> Iterator[FakeFunctions]:
    """Fakes that are made inside the block are gone after it."""
    with ExitStack() as until:
        yield FakeFunctions(until)


def _registered(name: str) -> FunctionDefinition[..., Any]:
    if name in registry.functions:
        return registry.functions[name]
    if name in registry.workflows:
        raise LookupError(f"{name!r} is a workflow; only a @function can be faked")
    close = get_close_matches(name, registry.functions)
    known = f"Did you mean {close[0]!r}?" if close else f"Known are: {', '.join(sorted(registry.functions)) or 'none'}."
    raise LookupError(f"There is no @function {name!r}. {known}")


def _by_keyword(definition: FunctionDefinition[..., Any], fake: FakeFunction) -> Callable[..., Any]:
    def stand_in(*args: Any, **data: Any) -> Any:
        return fake(**_named(definition, args, data))

    return stand_in


def _named(definition: FunctionDefinition[..., Any], args: tuple[Any, ...], data: Mapping[str, Any]) -> dict[str, Any]:
    names = list(definition.signature.parameters)[: len(args)]
    return {**dict(zip(names, args, strict=True)), **data}


def _outcome(value: Any) -> Any:
    if isinstance(value, BaseException) or (isinstance(value, type) and issubclass(value, BaseException)):
        raise value
    return value


def _always(value: Any) -> Callable[..., Any]:
    return lambda **data: _outcome(value)


def _one_by_one(name: str, outcomes: Iterable[Any]) -> Callable[..., Any]:
    given = list(outcomes)
    left = iter(given)

    def outcome(**data: Any) -> Any:
        for value in left:
            return _outcome(value)
        raise FakeExhaustedError(
            f"The fake of {name!r} was called once more than its side_effect has outcomes ({len(given)}), with {data!r}"
        )

    return outcome
