"""A body that changes while runs are under way: `flow.patched`, pinned workflows, and the replay check."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowRegistrationError, WorkflowStepFailedError
from pikku_storage.workflows import function, graph, node, workflow
from pikku_storage.workflows.definitions import FunctionDefinition, WorkflowDefinition
from pikku_storage.workflows.engine.checking import check_replay
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.histories import History, read_histories
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, data_statements, step_names

pytestmark = pytest.mark.django_db(transaction=True)

Body = Callable[..., Any]


def _deploy(body: Body, **options: Any) -> WorkflowDefinition[Any]:
    """This process now has that body for the workflow `order`."""
    definition: WorkflowDefinition[Any] = WorkflowDefinition(body, name="order", **options)
    registry.workflows["order"] = definition
    return definition


@pytest.fixture
def note() -> FunctionDefinition[Any, Any]:
    """A step that answers with its argument."""

    @function(retries=0)
    def note(text: str) -> str:
        return text

    return note


@pytest.fixture
def wake(service: WorkflowService, outbox: RecordingDispatcher) -> Callable[[], None]:
    """Lets two minutes pass."""

    def two_minutes() -> None:
        with clock.travel(2 * MINUTE):
            service.relay()
            outbox.deliver()

    return two_minutes


# -- patches -----------------------------------------------------------------------------------------------------------


def test_a_patch_holds_for_runs_that_come_to_it_first(
    outbox: RecordingDispatcher, note: FunctionDefinition[Any, Any], wake: Callable[[], None]
) -> None:
    def before(flow: Flow) -> list[str]:
        done = [flow.do("pack", note, {"text": "paper"})]
        flow.sleep("rest", "1min")
        return [*done, flow.do("send", note, {"text": "mail"})]

    def after(flow: Flow) -> list[str]:
        if flow.patched("cartons"):
            done = [flow.do("fold", note, {"text": "carton"}), flow.do("pack", note, {"text": "carton"})]
        else:
            done = [flow.do("pack", note, {"text": "paper"})]
        flow.sleep("rest", "1min")
        way = "courier" if flow.patched("courier") else "mail"
        return [*done, flow.do("send", note, {"text": way})]

    old = _deploy(before).start()
    outbox.deliver()
    new = _deploy(after).start()
    outbox.deliver()
    wake()

    assert (old.status, old.output) == ("completed", ["paper", "courier"]), "the second patch lies ahead of both"
    assert (new.status, new.output) == ("completed", ["carton", "carton", "courier"])
    assert "__patch:cartons" not in step_names(old.id)
    assert step_names(new.id)[0] == "__patch:cartons"
    assert list(find_violations()) == []


def test_an_answer_stays_the_same_in_a_loop(
    outbox: RecordingDispatcher, note: FunctionDefinition[Any, Any], wake: Callable[[], None]
) -> None:
    answers: list[list[bool]] = []

    def before(flow: Flow) -> None:
        for number in range(2):
            flow.do("work", note, {"text": str(number)})
        flow.sleep("rest", "1min")

    def after(flow: Flow) -> None:
        answers.append([])
        for number in range(3):
            answers[-1].append(flow.patched("thrice"))
            if number < 2 or answers[-1][-1]:
                flow.do("work", note, {"text": str(number)})
        flow.sleep("rest", "1min")

    run = _deploy(before).start()
    outbox.deliver()
    _deploy(after)
    wake()

    assert run.status == "completed"
    assert answers
    assert all(answer == [False, False, False] for answer in answers)


def test_a_recorded_patch_costs_nothing_more(
    outbox: RecordingDispatcher, note: FunctionDefinition[Any, Any], statements: Counter, service: WorkflowService
) -> None:
    """It is one step when it is first met, and is answered from the one read of a pass after that."""

    def body(patches: int) -> Body:
        def order(flow: Flow) -> None:
            for number in range(patches):
                assert flow.patched(f"patch {number}")
            flow.sleep("rest", "1h")

        return order

    counts = []
    for patches in (0, 3):
        run = _deploy(body(patches)).start()
        outbox.deliver()
        with statements() as seen:
            service.orchestrate_workflow(run.id)
        counts.append(len(data_statements(seen)))

    assert counts[0] == counts[1]


# -- pinned ------------------------------------------------------------------------------------------------------------


def test_a_pinned_run_waits_for_the_body_it_was_started_with(
    outbox: RecordingDispatcher, service: WorkflowService, wake: Callable[[], None]
) -> None:
    def before(flow: Flow) -> str:
        flow.sleep("rest", "1min")
        return "before"

    def after(flow: Flow) -> str:
        flow.sleep("rest", "1min")
        return "after"

    old = _deploy(before, versioning="pinned")
    run = old.start()
    outbox.deliver()
    new = _deploy(after, versioning="pinned")
    wake()

    assert run.status == "suspended"
    assert run.error is not None
    assert run.error["code"] == "VERSION_CONFLICT"
    assert old.graph_hash in run.error["message"]
    assert new.graph_hash in run.error["message"]

    _deploy(before, versioning="pinned")
    with clock.travel(10 * MINUTE):
        service.relay()
        outbox.deliver()
    assert (run.status, run.output) == ("completed", "before")


def test_other_runs_go_on_with_todays_body(outbox: RecordingDispatcher, wake: Callable[[], None]) -> None:
    def before(flow: Flow) -> str:
        flow.sleep("rest", "1min")
        return "before"

    def after(flow: Flow) -> str:
        flow.sleep("rest", "1min")
        return "after"

    run = _deploy(before).start()
    outbox.deliver()
    _deploy(after)
    wake()

    assert (run.status, run.output) == ("completed", "after")


def test_a_versioning_that_is_none_is_refused() -> None:
    with pytest.raises(WorkflowRegistrationError, match="auto-upgrade, pinned"):

        @workflow(versioning="frozen")  # type: ignore[call-overload, untyped-decorator]
        def order(flow: Flow) -> None: ...


# -- the replay check --------------------------------------------------------------------------------------------------


@pytest.fixture
def pack(note: FunctionDefinition[Any, Any]) -> Body:
    """A body with a step, a failure that it goes on after, a fan-out with a compensation, a delay, and state."""

    @function(name="fail", retries=0)
    def fail() -> None:
        raise ValueError("no")

    @function(name="undo")
    def undo(error: Any, input: Any, invocation_id: str) -> None: ...

    def order(flow: Flow, sku: str) -> list[Any]:
        flow.set_state("sku", sku)
        done: list[Any] = [flow.do("pack", note, {"text": sku}), flow.get_state("sku")]
        try:
            flow.do("coupon", fail, on_error=undo)
        except WorkflowStepFailedError:
            done.append("no coupon")
        done += flow.map("label", note, ["a", "b"])
        flow.sleep("rest", "1min")
        done.append(flow.do("send", note, {"text": "mail"}))
        return done

    return order


@pytest.fixture
def asleep(pack: Body, outbox: RecordingDispatcher) -> WorkflowRunHandle:
    """A run of it that rests."""
    run = _deploy(pack).start({"sku": "tea"})
    outbox.deliver()
    return run


@pytest.fixture
def done(asleep: WorkflowRunHandle, wake: Callable[[], None]) -> WorkflowRunHandle:
    """A run of it that is completed."""
    wake()
    assert asleep.status == "completed"
    return asleep


def _history(run: WorkflowRunHandle) -> History:
    [history] = read_histories([run.id])
    return history


@pytest.mark.parametrize("from_file", [False, True], ids=["database", "file"])
@pytest.mark.parametrize("name", ["asleep", "done"])
def test_the_code_that_made_a_history_agrees_with_it(
    request: pytest.FixtureRequest, statements: Counter, name: str, from_file: bool
) -> None:
    run = request.getfixturevalue(name)
    history = _history(run)
    if from_file:
        history = History.from_json(json.loads(json.dumps(history.to_json())))
    before = run.get()

    with statements() as seen:
        assert check_replay(history) is None

    assert data_statements(seen) == []
    assert run.get() == before


def _changed(note: FunctionDefinition[Any, Any]) -> dict[str, tuple[Body, str, str | None]]:
    """Bodies that part from `pack`; how, and at which step."""

    @function(name="other", retries=0)
    def other(text: str) -> str:
        return text

    def beginning(flow: Flow, sku: str) -> None:
        flow.do("pack", note, {"text": sku})

    def function_changed(flow: Flow, sku: str) -> None:
        flow.do("pack", other, {"text": sku})

    def data_changed(flow: Flow, sku: str) -> None:
        flow.do("pack", note, {"text": sku.upper()})

    def added(flow: Flow, sku: str) -> None:
        flow.do("weigh", note, {"text": sku})
        beginning(flow, sku)

    def removed(flow: Flow, sku: str) -> None:
        beginning(flow, sku)

    def reordered(flow: Flow, sku: str) -> None:
        flow.sleep("rest", "1min")
        beginning(flow, sku)

    def parameter(flow: Flow, colour: str) -> None: ...

    return {
        "function": (function_changed, "function", None),
        "data": (data_changed, "data", "pack"),
        "added": (added, "added", "weigh"),
        "removed": (removed, "removed", "coupon"),
        "order": (reordered, "order", "rest"),
        "parameter": (parameter, "data", None),
    }


@pytest.mark.parametrize("change", ["function", "data", "added", "removed", "order", "parameter"])
def test_the_first_divergence_is_found(
    asleep: WorkflowRunHandle, note: FunctionDefinition[Any, Any], change: str
) -> None:
    body, kind, step_name = _changed(note)[change]
    _deploy(body)

    divergence = check_replay(_history(asleep))

    assert divergence is not None
    assert (divergence.run_id, divergence.workflow) == (asleep.id, "order")
    assert (divergence.kind, divergence.step_name) == (kind, step_name)


def test_a_completed_run_is_compared_to_its_end(done: WorkflowRunHandle, pack: Body) -> None:
    def kind_of(body: Body) -> str | None:
        _deploy(body)
        divergence = check_replay(_history(done))
        return None if divergence is None else divergence.kind

    def other_output(flow: Flow, sku: str) -> Any:
        return [*pack(flow, sku), "more"]

    def raising(flow: Flow, sku: str) -> Any:
        pack(flow, sku)
        raise ValueError("today")

    def longer(flow: Flow, sku: str) -> Any:
        output = pack(flow, sku)
        flow.do("thank", lambda: None)
        return output

    def patched(flow: Flow, sku: str) -> Any:
        output = pack(flow, sku)
        if flow.patched("thanks"):
            flow.do("thank", lambda: None)
        return output

    assert [kind_of(body) for body in (pack, other_output, raising, longer, patched)] == [
        None,
        "output",
        "raised",
        "added",
        None,
    ]


def test_a_patch_makes_a_change_fit(asleep: WorkflowRunHandle, pack: Body, note: FunctionDefinition[Any, Any]) -> None:
    def patched(flow: Flow, sku: str) -> Any:
        if flow.patched("weight"):
            flow.do("weigh", note, {"text": sku})
        return pack(flow, sku)

    _deploy(patched)

    assert check_replay(_history(asleep)) is None


def test_runs_of_a_graph_are_passed_over(note: FunctionDefinition[Any, Any]) -> None:
    """They go on with their own version."""
    run = graph("order", entry="a", nodes={"a": node(note, input={"text": "a"})}).run()
    del registry.workflows["order"]
    graph("order", entry="b", nodes={"b": node(note, input={"text": "b"})})
    assert check_replay(_history(run)) is None


def test_what_is_not_there_or_pinned_diverges(asleep: WorkflowRunHandle) -> None:
    def other(flow: Flow, sku: str) -> None: ...

    history = _history(asleep)
    _deploy(other, versioning="pinned")
    pinned = check_replay(history)
    del registry.workflows["order"]
    gone = check_replay(history)

    assert pinned is not None
    assert gone is not None
    assert (pinned.kind, gone.kind) == ("version", "workflow")


# -- commands ----------------------------------------------------------------------------------------------------------


def _called(*args: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command(*args, stdout=out, stderr=StringIO())
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_checking_the_database_by_command(asleep: WorkflowRunHandle, note: FunctionDefinition[Any, Any]) -> None:
    assert _called("check_replay", "--workflow", "order") == (0, "1 runs checked, 0 diverge\n")
    assert _called("check_replay", "--status", "failed") == (0, "0 runs checked, 0 diverge\n")

    _deploy(_changed(note)["data"][0])
    detail = "is given {'text': 'TEA'}; recorded is {'text': 'tea'}"
    line = f"order, run {asleep.id}, step 'pack': data: {detail}\n"
    assert _called("check_replay") == (1, f"{line}1 runs checked, 1 diverge\n")
    code, text = _called("check_replay", asleep.id, "--json")
    assert code == 1
    assert json.loads(text) == {
        "run_id": asleep.id,
        "workflow": "order",
        "kind": "data",
        "step_name": "pack",
        "detail": detail,
    }


def test_checking_a_file_by_command(
    asleep: WorkflowRunHandle, note: FunctionDefinition[Any, Any], tmp_path: Path
) -> None:
    path = tmp_path / "histories.jsonl"
    assert _called("export_histories", "--output", str(path)) == (0, f"1 histories written to {path}\n")
    assert _called("export_histories")[1] == path.read_text(encoding="utf-8")
    assert _called("check_replay", "--file", str(path)) == (0, "1 runs checked, 0 diverge\n")

    _deploy(_changed(note)["added"][0])
    code, text = _called("check_replay", "--file", str(path))
    assert (code, "step 'weigh': added" in text) == (1, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"{", "line 1"),
        (b"[]", "line 1: not a history"),
        (b'{"format": 1}', "line 1: not a history"),
        (b'{"format": 99}', "format 99"),
        (b"\xff", "codec"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "histories.jsonl"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(CommandError, match=message):
        _called("check_replay", "--file", str(path))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("check_replay", "--limit", "0"), "at least 1"),
        (("check_replay", "--database", "nowhere"), "no database 'nowhere'"),
        (("export_histories", "--output", "/nowhere/at/all"), "No such file"),
    ],
)
def test_bad_arguments_are_refused(args: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        _called(*args)
