"""One pass through a graph: the steps, fences and wake-ups of a body, begun by a plan instead of a function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pikku_storage.exceptions import PayloadError, RPCNotFoundError, WorkflowInputError
from pikku_storage.json import Json
from pikku_storage.retry import RetryPolicy
from pikku_storage.workflows.definitions import BaseWorkflow, FunctionDefinition, arguments_of
from pikku_storage.workflows.engine import children
from pikku_storage.workflows.engine.attempts import Target
from pikku_storage.workflows.engine.replay import Call, Replay, target_of
from pikku_storage.workflows.errors import RPC_NOT_FOUND, at_step
from pikku_storage.workflows.graphs.plan import Begin, plan
from pikku_storage.workflows.graphs.structure import PARALLEL, Graph
from pikku_storage.workflows.records import StepState
from pikku_storage.workflows.registry import registry


def run_graph(graph: Graph, replay: Replay) -> Json:
    """Carry the run on as far as it goes, and answer with its output. Leaves as a body does where it must wait."""
    carried: set[str] = set()
    while True:
        following = plan(graph, replay.run, replay.steps)
        is_alone = len(following.begin) + len(following.under_way) == 1
        if not (following.begin or following.under_way):
            break
        calls: list[Call] = []
        missing: RPCNotFoundError | None = None
        steps: list[StepState | Begin] = [*following.under_way, *following.begin]
        for step in (step for step in steps if step.step_name not in carried):
            carried.add(step.step_name)
            try:
                calls.append(_begun(step) if isinstance(step, StepState) else _new(step, replay, is_alone=is_alone))
            except RPCNotFoundError as error:
                missing = error
        replay.advance(calls)
        if missing is not None:
            replay.suspend(RPC_NOT_FOUND, str(missing))
        if not calls:
            replay.wait()
    if following.failure is not None:
        raise following.failure
    return following.output


def _begun(step: StepState) -> Call:
    """A step that is under way: what it is given, and where, was decided when it began."""
    return Call(
        name=step.step_name,
        target=_target(step.rpc_name, step.timeout_ms),
        data=step.data,
        policy=_NO_POLICY,
        group=step.group,
        is_workflow=step.rpc_name in registry.workflows,
    )


def _new(begin: Begin, replay: Replay, *, is_alone: bool) -> Call:
    node = begin.node
    if begin.is_empty:
        return Call(
            name=begin.step_name,
            target=_target(None, None),
            data={},
            policy=RetryPolicy(0),
            came_from=begin.came_from,
        )
    definition = _definition(node.function)
    try:
        data = arguments_of(definition.parameters, begin.data)
        if isinstance(definition, BaseWorkflow):
            children.check_call(replay.runtime, replay.run, definition, data, has_timeout=node.timeout_ms is not None)
        else:
            definition.check(data)
    except (PayloadError, WorkflowInputError) as error:
        raise at_step(begin.step_name, error) from None
    # As long as nothing else is to be done, a step runs where its run runs. Side by side they spread.
    spreads = not is_alone or (begin.group is not None and node.mode == PARALLEL)
    return Call(
        name=begin.step_name,
        target=_target(node.function, node.timeout_ms),
        data=data,
        policy=definition.policy.overridden(node.retries, node.retry_delay),
        queue=None if isinstance(definition, BaseWorkflow) else replay.queue_of(definition, in_group=spreads),
        group=begin.group,
        is_workflow=isinstance(definition, BaseWorkflow),
        came_from=begin.came_from,
    )


def _target(rpc_name: str | None, timeout_ms: int | None) -> Target:
    if rpc_name is None:
        # The one step of a fan-out over nothing: its result is the empty list.
        return Target(func=list, rpc_name=None, timeout_ms=None)
    target = target_of(_definition(rpc_name))
    return target if timeout_ms is None else replace(target, timeout_ms=timeout_ms)


def _definition(name: str) -> FunctionDefinition[..., Any] | BaseWorkflow:
    """What a node's name stands for. Raises `RPCNotFoundError`."""
    return registry.workflows.get(name) or registry.function(name)


_NO_POLICY = RetryPolicy()
"""Of a step that has begun; its row has its own."""
