"""`graph` and `node`: what is wrong is said where it is declared."""

from __future__ import annotations

from typing import Any

import pytest

from pikku_storage.exceptions import WorkflowInputError, WorkflowRegistrationError
from pikku_storage.workflows import GraphDefinition, function, graph, item, node, ref, template, trigger, workflow
from pikku_storage.workflows.definitions import FunctionDefinition
from pikku_storage.workflows.graphs.structure import Graph
from pikku_storage.workflows.registry import registry


def _pack(sku: str, n: int = 1) -> None: ...


@pytest.fixture
def pack() -> FunctionDefinition[Any, Any]:
    """A function with one parameter that it needs."""
    return function(name="pack")(_pack)


def declared(nodes: dict[str, Any], **options: Any) -> GraphDefinition:
    return graph("order", nodes=nodes, **{"entry": "a", **options})


TEA = {"sku": "tea"}


@pytest.mark.parametrize(
    ("nodes", "options", "problem"),
    [
        pytest.param({"a": node("f")}, {"entry": "b"}, "entry node 'b' is not defined", id="entry"),
        pytest.param(
            {"a": node("f", input={"x": ref("gone")})},
            {},
            "node 'a': its input refers to the unknown node 'gone'",
            id="reference",
            marks=pytest.mark.contract("GR-04"),
        ),
        pytest.param(
            {"a": node("f", input=TEA | {"x": template("{0}", ref("gone"))})},
            {},
            "unknown node 'gone'",
            id="template",
            marks=pytest.mark.contract("GR-04"),
        ),
        pytest.param(
            {"a": node("f", next={"ok": ["gone"]})},
            {},
            "node 'a': it leads to the unknown node 'gone'",
            id="next",
            marks=pytest.mark.contract("GR-05"),
        ),
        pytest.param({"a": node("f", on_error="gone")}, {}, "node 'a': its on_error names the unknown", id="on_error"),
        pytest.param(
            {"a": node("f", for_each=ref("gone"))},
            {},
            "node 'a': its for_each refers to the unknown node 'gone'",
            id="for_each",
            marks=pytest.mark.contract("GF-10"),
        ),
        pytest.param({"a": node("f", for_each=[1, 2])}, {}, "its for_each is no reference", id="no reference"),  # type: ignore[arg-type]
        pytest.param({"a": node("f", for_each=trigger("x"), mode="fast")}, {}, "its mode is 'fast'", id="mode"),
        pytest.param({"a": node("f", mode="sequential")}, {}, "it has a mode and no for_each", id="idle mode"),
        pytest.param(
            {"a": node("f", for_each=trigger("x"), next={"ok": "b"}), "b": node("f")},
            {},
            "cannot choose",
            id="branches",
        ),
        pytest.param({}, {"entry": ()}, "it has no nodes", id="empty"),
        pytest.param({"a": node("f")}, {"entry": ()}, "it has no entry node", id="no entry"),
        pytest.param(
            {"a": node("f", input={"x": ref("b")}, next="b"), "b": node("f")}, {}, "waits for 'b'", id="waiting entry"
        ),
        pytest.param({"a": node("f"), "b": node("f")}, {}, "node 'b': it can never be reached from 'a'", id="island"),
        pytest.param(
            {"a": node("f", next="b"), "b": node("f", next=["c", "a"]), "c": node("f")},
            {},
            "no branch leaves",
            id="endless",
        ),
        pytest.param(
            {"a": node("f", on_error="b"), "b": node("f", next={"again": "a"})},
            {},
            "leads back to it by way of 'b'",
            id="error cycle",
        ),
        pytest.param({"a": node("f", on_error="a")}, {}, "leads back", id="error loop"),
        pytest.param({"a": node("f", input={"x": item()})}, {}, "node 'a': item() has a meaning", id="item"),
        pytest.param({"a": node("f", for_each=item("x"))}, {}, "item() has a meaning", id="item of item"),
        pytest.param({"a": node("f")}, {"output": item()}, "item() has a meaning", id="item in output"),
        pytest.param({"a": node("f")}, {"output": ref("b")}, "the output refers to the unknown node 'b'", id="output"),
        pytest.param({"a": node("f", input={"x": template("{0}")})}, {}, "placeholder without", id="placeholder"),
        pytest.param({"trigger": node("f")}, {"entry": "trigger"}, "the name is taken", id="reserved"),
        pytest.param({"": node("f")}, {"entry": ""}, "node '': its name must have 1 to", id="no name"),
        pytest.param({"a": "f"}, {}, "node 'a': 'f' is no node", id="no node"),
        pytest.param({"a": node(_pack)}, {}, "node 'a': a node takes a @function", id="plain"),  # type: ignore[arg-type]
        pytest.param({"a": node("f", retries=-1)}, {}, "node 'a': retries must be", id="retries"),
        pytest.param({"a": node("f", timeout=0)}, {}, "node 'a': a timeout of 0", id="timeout"),
        pytest.param({"a": node("f", retry_delay="soon")}, {}, "node 'a': ", id="delay"),
        pytest.param({"a": node("f", input={"x": {1}})}, {}, "node 'a': $input.x: set is not JSON", id="not JSON"),
    ],
)
def test_what_is_wrong_is_said_with_the_node(nodes: dict[str, Any], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(WorkflowRegistrationError, match="test_graph_declaration") as caught:
        declared(nodes, **options)
    assert problem in str(caught.value)
    assert "graph 'order'" in str(caught.value)
    assert "order" not in registry.workflows


@pytest.mark.contract("GR-06", "GR-07")
@pytest.mark.parametrize("name", ["pack#1", "pack[0]", "pack ${sku}"])
def test_a_name_that_a_step_of_another_node_may_have_is_ambiguous(name: str) -> None:
    """A step's name, and the branch that is kept under it, belong to one node: ours takes no patterns as names."""
    with pytest.raises(WorkflowRegistrationError, match="its name is ambiguous"):
        declared({"pack": node("f", next=name), name: node("f")}, entry="pack")


@pytest.mark.parametrize("given", [{}, {"weight": 1}, {"sku": "tea", "weight": 1}])
def test_an_input_that_does_not_fit_the_function_is_refused(
    pack: FunctionDefinition[Any, Any], given: dict[str, Any]
) -> None:
    with pytest.raises(WorkflowRegistrationError, match="node 'a': The data of function 'pack' does not fit"):
        declared({"a": node(pack, input=given)})


def test_a_node_without_input_is_checked_for_what_it_will_be_given(pack: FunctionDefinition[Any, Any]) -> None:
    with pytest.raises(WorkflowRegistrationError, match=r"node 'b': .* missing 'sku'"):
        declared({"a": node("f", next="b"), "b": node(pack)})
    with pytest.raises(WorkflowRegistrationError, match=r"node 'b': .*unexpected 'error'"):
        declared({"a": node("f", on_error="b"), "b": node(pack)})
    declared({"a": node("f", next="b"), "b": node(pack, for_each=ref("a"))})


def test_a_whole_result_as_input_is_not_known_before(pack: FunctionDefinition[Any, Any]) -> None:
    declared({"a": node("f", next="b"), "b": node(pack, input=ref("a"))})


@pytest.mark.parametrize("name", ["", 7, "x" * 256])
def test_a_graph_has_a_name(name: Any) -> None:
    with pytest.raises(WorkflowRegistrationError, match="graph"):
        graph(name, nodes={"a": node("f")}, entry="a")


def test_a_graph_and_a_workflow_cannot_share_a_name() -> None:
    declared({"a": node("f")})
    with pytest.raises(WorkflowRegistrationError, match="'order' is registered twice"):
        workflow(name="order")(lambda flow: None)


def test_the_same_lines_again_replace_the_graph() -> None:
    graphs = [declared({"a": node("f", retries=retries)}) for retries in (1, 2)]
    assert registry.workflows["order"] is graphs[1]
    assert graphs[0].graph_hash != graphs[1].graph_hash


# -- what is stored ----------------------------------------------------------------------------------------------------


def _full() -> GraphDefinition:
    return declared(
        {
            "a": node("f", input={"x": trigger("x")}, next={"ok": "b", "no": ["c", "b"], "end": ()}, on_error="d"),
            "b": node(
                "g", for_each=ref("a", "rows"), mode="sequential", input={"y": item()}, retries=2, retry_delay="3s"
            ),
            "c": node("h", timeout="1min", input={"t": template("{0}", ref("a"))}),
            "d": node("i"),
        },
        output={"done": ref("b", default=None)},
    )


def test_the_stored_graph_is_complete() -> None:
    definition = _full()
    assert Graph.from_json("order", definition.graph) == definition.structure
    assert definition.graph["nodes"]["b"] == {
        "nodeId": "b",
        "rpcName": "g",
        "input": {"y": {"$ref": "$item"}},
        "forEach": {"$ref": "a", "path": "rows"},
        "mode": "sequential",
        "retries": 2,
        "retryDelay": "3s",
    }
    assert definition.graph["nodes"]["a"]["next"] == {"ok": ["b"], "no": ["c", "b"], "end": []}


def test_another_program_may_store_a_single_target_without_a_list() -> None:
    nodes = {"a": {"rpcName": "f", "next": {"ok": "b"}, "onError": "b", "retryDelay": 500}, "b": {"rpcName": "g"}}
    stored = Graph.from_json("order", {"nodes": nodes, "entryNodeIds": ["a"]})
    assert (stored.nodes["a"].next, stored.nodes["a"].on_error) == ({"ok": ("b",)}, ("b",))
    assert stored.nodes["a"].retry_delay == "500"


def test_the_version_is_the_structure() -> None:
    def order(**changes: Any) -> str:
        nodes = {"a": node("f", next="b"), "b": node("g", **changes)}
        return declared(dict(reversed(nodes.items())) if not changes else nodes).graph_hash

    assert order() == declared({"a": node("f", next="b"), "b": node("g")}).graph_hash, "in whichever order"
    assert len({order(), order(retries=1), order(input=TEA), order(timeout=5), order(next={"x": ()})}) == 5


# -- checks at the start -----------------------------------------------------------------------------------------------


def test_what_the_nodes_take_from_the_input_must_be_there() -> None:
    definition = declared(
        {"a": node("f", input={"x": trigger("x.y")}, next="b"), "b": node("g", input={"z": trigger("z", default=1)})}
    )
    definition.check({"x": {"y": None}, "more": 1})
    with pytest.raises(WorkflowInputError, match=r"has no 'x\.y', which node 'a' takes from it"):
        definition.check({"x": {}})


@pytest.mark.parametrize("given", [None, "abc", {"a": 1}, 3])
def test_a_node_that_goes_over_the_input_needs_a_list_there(given: Any) -> None:
    definition = declared({"a": node("f", for_each=trigger("rows"))})
    definition.check({"rows": []})
    with pytest.raises(WorkflowInputError, match="node 'a' has for_each over no list"):
        definition.check({"rows": given})


def test_an_entry_without_input_takes_the_input_as_it_is(pack: FunctionDefinition[Any, Any]) -> None:
    definition = declared({"a": node(pack)})
    definition.check(TEA)
    with pytest.raises(WorkflowInputError, match="missing 'sku'"):
        definition.check({"n": 1})


# -- ways through it ---------------------------------------------------------------------------------------------------


def test_each_cycle_has_an_edge_that_leads_back() -> None:
    loop = {"x": "a", "out": ()}
    definition = declared(
        {"a": node("f", next=["b", "c"]), "b": node("f", next="d"), "c": node("f", next="d"), "d": node("f", next=loop)}
    )
    assert definition.structure.back_edges == {("d", "a")}
    assert definition.structure.in_one_cycle("b", "d")
    assert not declared({"a": node("f", next="b"), "b": node("f")}).structure.back_edges


def test_a_graph_may_be_a_thousand_nodes_deep() -> None:
    nodes = {f"n{index}": node("f", next=f"n{index + 1}" if index < 999 else ()) for index in range(1000)}
    assert declared(nodes, entry="n0").structure.in_order[-1] == "n999"


# -- the picture -------------------------------------------------------------------------------------------------------


@pytest.mark.contract("GV-01")
def test_a_diagram_has_nodes_and_edges_and_its_error_edges_are_dotted() -> None:
    assert _full().to_mermaid().splitlines() == [
        "graph TD",
        '  n0(["a<br/><small>f</small>"])',
        '  n1[["b<br/><small>g</small>"]]',
        '  n2["c<br/><small>h</small>"]',
        '  n3["d<br/><small>i</small>"]',
        '  n0 -->|"no"| n2',
        '  n0 -->|"no"| n1',
        '  n0 -->|"ok"| n1',
        "  n0 -.->|error| n3",
    ]


def test_no_name_can_break_a_diagram() -> None:
    name = 'a"<b>\n&;(x)|'
    diagram = declared({name: node("f")}, entry=name).to_mermaid()
    assert diagram.splitlines()[1] == '  n0(["a#34;#60;b#62; #38;;#40;x#41;#124;<br/><small>f</small>"])'
