"""References and templates: how they are written, and what they come to."""

from typing import Any

import pytest

from pikku_storage.workflows import item, ref, template, trigger
from pikku_storage.workflows.graphs.values import UnresolvedError, references_in, resolve

SCOPE: dict[str, Any] = {
    "trigger": {"id": "A17", "lines": [{"sku": "tea"}, {"sku": "pot"}], "gift": None},
    "charge": {"receipt": {"id": 7}, "paid": True},
    "count": 3,
}


def parts_of(value: dict[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    return value["$template"]["parts"], value["$template"]["expressions"]


@pytest.mark.contract("GV-02")
def test_a_template_with_one_placeholder_splits_into_parts_and_one_reference() -> None:
    assert parts_of(template("Order {0}!", ref("charge"))) == (["Order ", "!"], [{"$ref": "charge"}])


@pytest.mark.contract("GV-03")
def test_several_placeholders_keep_their_order() -> None:
    value = template("{1} before {0}, and {1}", ref("a"), ref("b"))
    assert parts_of(value) == (["", " before ", ", and ", ""], [{"$ref": "b"}, {"$ref": "a"}, {"$ref": "b"}])


@pytest.mark.contract("GV-04", "GV-08")
def test_a_path_is_kept_and_an_absent_one_is_left_out() -> None:
    value = template("{0}{1}", trigger("a.b"), trigger())
    assert parts_of(value)[1] == [{"$ref": "trigger", "path": "a.b"}, {"$ref": "trigger"}]


@pytest.mark.contract("GV-05")
def test_a_template_without_a_placeholder_has_one_part() -> None:
    assert parts_of(template("plain {{text}}")) == (["plain {text}"], [])


@pytest.mark.contract("GV-06")
@pytest.mark.parametrize("text", ["{1}", "{}", "{name}", "{-1}"])
def test_a_placeholder_without_a_reference_is_unknown(text: str) -> None:
    assert parts_of(template(text, ref("charge")))[1] == [{"$ref": "unknown"}]


@pytest.mark.contract("GV-07")
def test_adjacent_placeholders_keep_the_empty_parts() -> None:
    assert parts_of(template("{0}{1}", ref("a"), ref("b")))[0] == ["", "", ""]


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (ref("charge"), {"receipt": {"id": 7}, "paid": True}),
        (ref("charge", "receipt.id"), 7),
        (trigger("lines.1.sku"), "pot"),
        (trigger("gift"), None),
        (trigger("gift", default=1), None),
        (trigger("lines.2", default="none"), "none"),
        (trigger("gift.wrap", default=0), 0),
        (ref("later", default=[]), []),
        (ref("count"), 3),
        (
            template("{0}: {1} {2} {3}", trigger("id"), ref("charge", "paid"), trigger("gift"), ref("count")),
            "A17: true  3",
        ),
        (template("{0}", trigger("lines.0")), '{"sku": "tea"}'),
        ({"a": [ref("count"), {"b": trigger("id")}], "c": 1}, {"a": [3, {"b": "A17"}], "c": 1}),
    ],
)
def test_what_a_value_comes_to(value: Any, result: Any) -> None:
    assert resolve(value, SCOPE) == result


@pytest.mark.parametrize("path", ["nothing", "lines.2", "lines.sku", "id.0", "gift.wrap", "lines.-1"])
def test_a_path_that_leads_nowhere_is_an_error_that_says_where(path: str) -> None:
    with pytest.raises(UnresolvedError, match=f"there is no '{path}' in what 'trigger' is"):
        resolve(trigger(path), SCOPE)


def test_an_element_is_what_is_being_gone_over() -> None:
    assert resolve({"sku": item("sku"), "all": item()}, {"$item": {"sku": "tea"}}) == {
        "sku": "tea",
        "all": {"sku": "tea"},
    }
    assert resolve(item(), {}) is None


def test_all_references_of_a_value_are_found() -> None:
    value = {"a": [ref("x"), 1], "b": template("{0}", ref("y", "p")), "c": {"d": trigger("z")}}
    assert [reference["$ref"] for reference in references_in(value)] == ["x", "y", "trigger"]
