"""`@workflow` and `@function`: what may be registered, and how data must fit."""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from pikku_storage.exceptions import (
    RPCNotFoundError,
    WorkflowInputError,
    WorkflowNotFoundError,
    WorkflowRegistrationError,
)
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.registry import registry

# -- registration ------------------------------------------------------------------------------------------------------


def test_a_decorated_function_is_registered_under_its_name_and_still_callable() -> None:
    @function
    def pack(order_id: str) -> str:
        """Pack an order."""
        return f"packed {order_id}"

    assert pack("A1") == "packed A1"
    assert registry.function("pack") is pack
    assert (pack.name, vars(pack)["__name__"], pack.__doc__) == ("pack", "pack", "Pack an order.")
    assert (pack.queued, pack.queue, pack.timeout_ms, pack.policy.max_attempts) == (False, None, None, 6)
    assert repr(pack) == "<function pack>"


def test_options_of_a_function_are_kept() -> None:
    @function(name="parcel.pack", retries=3, retry_delay="2s", timeout="30s", queued=True)
    def pack() -> None: ...

    assert registry.function("parcel.pack") is pack
    assert (pack.policy.max_attempts, pack.policy.fixed_delay_ms, pack.timeout_ms) == (4, 2_000, 30_000)
    assert pack.queued
    assert pack.queue is None


def test_a_queue_of_its_own_implies_queued() -> None:
    @function(queue="mail")
    def send() -> None: ...

    assert send.queued
    assert send.queue == "mail"


@pytest.mark.parametrize("http", [False, True, "orders.add_order"])
def test_a_workflow_says_whether_it_is_served_over_http(http: bool | str) -> None:
    @workflow(name="served", http=http)
    def body(flow: Flow) -> None: ...

    assert registry.workflow("served").http == http


def test_a_workflow_is_not_served_over_http_unless_it_says_so() -> None:
    @workflow
    def body(flow: Flow) -> None: ...

    assert body.http is False


@pytest.mark.parametrize("http", ["", "add_order", ".add_order", "orders.", None, 1, ["orders.add_order"]])
def test_what_is_neither_a_yes_nor_a_permission_is_refused(http: Any) -> None:
    with pytest.raises(WorkflowRegistrationError, match="http is True, False or a permission"):

        @workflow(http=http)
        def body(flow: Flow) -> None: ...


@pytest.mark.parametrize("name", ["orders/add", "/", ".", ".."])
def test_a_name_that_is_no_part_of_an_address_cannot_be_served(name: str) -> None:
    with pytest.raises(WorkflowRegistrationError, match="cannot be a part of an address"):

        @workflow(name=name, http=True)
        def body(flow: Flow) -> None: ...


def test_a_workflow_is_registered_under_its_name() -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    @workflow(name="order.v2")
    def newer(flow: Flow) -> None: ...

    assert registry.workflow("order") is order
    assert registry.workflow("order.v2") is newer
    assert repr(order) == "<workflow order>"


def test_a_function_name_registered_twice_names_both_places() -> None:
    @function(name="pack")
    def first() -> None: ...

    with pytest.raises(
        WorkflowRegistrationError, match=r"The name 'pack' is registered twice: by .*first.* and by .*second"
    ):

        @function(name="pack")
        def second() -> None: ...

    assert registry.function("pack") is first


def test_a_workflow_name_registered_twice_is_refused() -> None:
    @workflow(name="order")
    def first(flow: Flow) -> None: ...

    with pytest.raises(WorkflowRegistrationError, match="'order' is registered twice"):

        @workflow(name="order")
        def second(flow: Flow) -> None: ...

    assert registry.workflow("order") is first


def test_a_function_may_not_take_a_workflows_name() -> None:
    @workflow(name="order")
    def first(flow: Flow) -> None: ...

    with pytest.raises(WorkflowRegistrationError, match="registered twice"):

        @function(name="order")
        def second() -> None: ...


def test_the_same_lines_again_are_a_reloaded_module() -> None:
    made: list[Any] = []
    for _ in range(2):

        @function
        def pack() -> None: ...

        made.append(pack)

    assert registry.function("pack") is made[1]


def test_unknown_names_are_told() -> None:
    with pytest.raises(WorkflowNotFoundError, match="Workflow not found: nothing"):
        registry.workflow("nothing")
    with pytest.raises(RPCNotFoundError, match=r"RPC 'nothing' not found\. Deploy the missing function and resume\."):
        registry.function("nothing")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "must have 1 to 255 characters, not 0"),
        ("x" * 256, "must have 1 to 255 characters, not 256"),
        (5, "must be a text, not int"),
        ("a\x00", "text with a NUL character at position 1"),
    ],
    ids=["empty", "too long", "number", "nul"],
)
def test_what_is_no_name_is_refused(name: Any, problem: str) -> None:
    with pytest.raises(WorkflowRegistrationError, match=f"is no name: it {problem}"):

        @function(name=name)
        def pack() -> None: ...


@pytest.mark.parametrize("thing", [len, str, "text", object()], ids=["builtin", "class", "text", "object"])
def test_only_plain_functions_can_be_decorated(thing: Any) -> None:
    with pytest.raises(WorkflowRegistrationError, match="takes a plain function, not"):
        function(thing)
    with pytest.raises(WorkflowRegistrationError, match="takes a plain function, not"):
        workflow(thing)


def test_a_parameter_that_cannot_be_passed_by_keyword_is_refused() -> None:
    with pytest.raises(WorkflowRegistrationError, match="the parameter order_id: str cannot be passed by keyword"):

        @function
        def positional(order_id: str, /) -> None: ...

    with pytest.raises(WorkflowRegistrationError, match=r"the parameter \*orders: str cannot be passed by keyword"):

        @workflow
        def variadic(flow: Flow, *orders: str) -> None: ...


def test_a_positional_only_flow_is_fine() -> None:
    @workflow
    def order(flow: Flow, /, order_id: str) -> None: ...

    order.check({"order_id": "A1"})


def test_a_workflow_needs_a_parameter_for_the_flow() -> None:
    with pytest.raises(WorkflowRegistrationError, match="a workflow's first parameter is the flow"):

        @workflow  # type: ignore[arg-type]
        def order() -> None: ...


def test_an_async_body_is_refused() -> None:
    with pytest.raises(
        WorkflowRegistrationError, match="a workflow's body is a plain def; its step functions may be async def"
    ):

        @workflow
        async def order(flow: Flow) -> None: ...


def test_a_schedule_is_kept_as_it_is_declared() -> None:
    @workflow(schedule="0 3 * * *", timezone="Europe/Berlin", catch_up="all", overlap="skip")
    def nightly(flow: Flow) -> None: ...

    @workflow
    def by_hand(flow: Flow) -> None: ...

    assert nightly.schedule is not None
    assert (nightly.schedule.cron, nightly.schedule.zone) == ("0 3 * * *", "Europe/Berlin")
    assert (nightly.schedule.catch_up, nightly.schedule.overlap) == ("all", "skip")
    assert by_hand.schedule is None


def test_a_schedule_without_a_time_zone_has_that_of_the_project(settings: Settings) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"

    @workflow(schedule="@daily")
    def nightly(flow: Flow) -> None: ...

    assert nightly.schedule is not None
    assert nightly.schedule.zone == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"schedule": "61 * * * *"}, "Bad minute"),
        ({"schedule": 3}, "is no cron expression"),
        ({"schedule": "@daily", "timezone": "Mars/Phobos"}, "is no time zone"),
        ({"schedule": "@daily", "catch_up": "some"}, "'some' is not a valid CatchUp"),
        ({"schedule": "@daily", "overlap": "maybe"}, "'maybe' is not a valid Overlap"),
        ({"schedule": "@daily", "name": "n" * 201}, "must have 1 to 200 characters"),
        ({"timezone": "Europe/Berlin"}, "go with a schedule"),
        ({"overlap": "skip"}, "go with a schedule"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_with_the_workflows_place(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(WorkflowRegistrationError, match=rf"test_definitions.*nightly.*line.*{problem}"):

        @workflow(**options)
        def nightly(flow: Flow) -> None: ...


def test_a_step_function_may_be_async() -> None:
    @function
    async def pack() -> None: ...

    assert registry.function("pack") is pack


@pytest.mark.parametrize(
    "options",
    [{"retries": -1}, {"retries": "3"}, {"retry_delay": "soon"}, {"timeout": "1.5s"}, {"timeout": -1}],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused_with_the_functions_place(options: Any) -> None:
    with pytest.raises(WorkflowRegistrationError, match=r"test_definitions.*pack.*line"):

        @function(**options)
        def pack() -> None: ...


# -- binding -----------------------------------------------------------------------------------------------------------


@function(name="tests.bound")
def bound(order_id: str, amount: int = 0, *, note: str = "") -> None: ...


@pytest.mark.parametrize("data", [{"order_id": "A"}, {"order_id": "A", "note": "x", "amount": 3}], ids=str)
def test_data_that_fits_is_accepted(data: dict[str, Any]) -> None:
    bound.check(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "missing 'order_id'"),
        ({"order_id": "A", "colour": "red"}, "unexpected 'colour'"),
        ({"amount": 1, "b": 1, "a": 2}, "missing 'order_id'; unexpected 'b', 'a'"),
    ],
    ids=str,
)
def test_data_that_does_not_fit_is_told_by_name(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(WorkflowInputError) as caught:
        bound.check(data)

    assert str(caught.value).startswith("The data of function 'tests.bound' does not fit tests.bound(order_id: ")
    assert str(caught.value).endswith(problem)


def test_a_function_that_takes_any_keyword_refuses_only_what_is_missing() -> None:
    @function
    def anything(order_id: str, **rest: Any) -> None: ...

    anything.check({"order_id": "A", "what": 1})
    with pytest.raises(WorkflowInputError, match="missing 'order_id'"):
        anything.check({"what": 1})


def test_the_flow_is_no_part_of_a_workflows_data() -> None:
    @workflow
    def order(flow: Flow, order_id: str) -> None: ...

    order.check({"order_id": "A"})
    with pytest.raises(WorkflowInputError, match="unexpected 'flow'"):
        order.check({"order_id": "A", "flow": 1})


def test_the_flow_is_no_part_of_the_data_of_a_workflow_that_takes_any_keyword() -> None:
    @workflow  # type: ignore[arg-type]
    def order(flow: Flow, **rest: Any) -> None: ...

    with pytest.raises(WorkflowInputError):
        order.check({"flow": 1})


# -- versions ----------------------------------------------------------------------------------------------------------

BODY = '''
def order(flow, order_id):
    """What it does."""
    # Pack first.
    parcel = flow.do("pack", pack, {"order_id": order_id})
    return {"parcel": parcel}
'''
SAME = '''
def order(
    flow,
    order_id,
):
    """Another description."""

    parcel = flow.do(
        "pack", pack,
        {'order_id': order_id},  # by number
    )


    return {"parcel": parcel}
'''


@pytest.fixture
def defined(tmp_path: Any) -> Callable[[str], WorkflowDefinition[Any]]:
    """Defines a workflow from source text, as a module would."""
    count = iter(range(100))

    def define(source: str, name: str = "order") -> WorkflowDefinition[Any]:
        path = tmp_path / f"module_{next(count)}.py"
        path.write_text(source)
        namespace: dict[str, Any] = {"__name__": path.stem}
        exec(compile(source, str(path), "exec"), namespace)  # noqa: S102
        return WorkflowDefinition(namespace["order"], name=name)

    return define


def test_comments_layout_and_docstring_do_not_change_the_version(
    defined: Callable[[str], WorkflowDefinition[Any]],
) -> None:
    assert defined(BODY).graph_hash == defined(SAME).graph_hash


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"pack"', '"wrap"'),
        ("order_id):", "order_id, express=False):"),
        ("return", "return None or"),
        ('{"parcel": parcel}', '{"parcel": [parcel]}'),
    ],
)
def test_what_the_body_does_changes_the_version(
    defined: Callable[[str], WorkflowDefinition[Any]], old: str, new: str
) -> None:
    assert old in BODY
    assert defined(BODY).graph_hash != defined(BODY.replace(old, new)).graph_hash


def test_workflows_of_the_same_body_have_versions_of_their_own(
    defined: Callable[..., WorkflowDefinition[Any]],
) -> None:
    assert defined(BODY).graph_hash != defined(BODY, name="orders").graph_hash


def test_the_decorator_is_no_part_of_the_version(defined: Callable[[str], WorkflowDefinition[Any]]) -> None:
    decorated = BODY.replace("def order", "@(lambda body: body)\ndef order")

    assert defined(decorated).graph_hash == defined(BODY).graph_hash


def test_a_body_without_source_still_has_a_version() -> None:
    namespace: dict[str, Any] = {}
    # A name of its own: what `python -c` was given is the source of `<string>` on Python 3.13.
    exec(compile("def order(flow):\n    return 1", "<nowhere>", "exec"), namespace)  # noqa: S102
    definition = WorkflowDefinition(namespace["order"])

    assert definition.source == ""
    assert len(definition.graph_hash) == 32


def test_bodies_without_source_differ_by_what_they_do() -> None:
    hashes = set()
    for constant in ('"a"', '"b"'):
        namespace: dict[str, Any] = {}
        exec(compile(f"def order(flow):\n    return {constant}", "<nowhere>", "exec"), namespace)  # noqa: S102
        hashes.add(WorkflowDefinition(namespace["order"]).graph_hash)

    assert len(hashes) == 2


def test_a_stored_version_shows_the_source_and_the_parameters() -> None:
    @workflow
    def order(flow: Flow, order_id: str) -> str:
        return order_id

    assert order.graph["name"] == "order"
    assert order.graph["parameters"] == "(order_id: str)"
    assert "return order_id" in order.graph["source"]
