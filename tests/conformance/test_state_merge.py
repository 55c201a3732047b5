"""The state of a run: keys merge in the database."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.support import data_statements
from tests.factories import RunFactory

pytestmark = pytest.mark.django_db


@pytest.mark.contract("KW-15")
def test_keys_written_by_three_callers_all_survive(service: WorkflowService) -> None:
    run = RunFactory.create()
    callers = [WorkflowService(worker=name) for name in "abc"]
    for number, caller in enumerate(callers):
        assert caller.get_run_state(run.id) is not None, "what a caller read before does not matter"
        caller.update_run_state(run.id, f"key {number}", number)

    assert service.get_run_state(run.id) == {"key 0": 0, "key 1": 1, "key 2": 2}


@pytest.mark.django_db(transaction=True)
@pytest.mark.contract("KW-16")
def test_a_state_write_is_one_statement(service: WorkflowService, statements: Counter) -> None:
    run = RunFactory.create()

    with statements() as seen:
        service.update_run_state(run.id, "courier", "dhl")

    (text,) = data_statements(seen)
    assert text.startswith(("UPDATE", "db.workflow_runs.update_one"))
    assert len(seen.captured_queries) == 1


@pytest.mark.contract("KW-17")
def test_writing_a_key_again_replaces_it_whole(service: WorkflowService) -> None:
    run = RunFactory.create()
    service.update_run_state(run.id, "parcel", {"id": 1, "weight": 2})
    service.update_run_state(run.id, "other", 1)
    service.update_run_state(run.id, "parcel", {"id": 2})

    assert service.get_run_state(run.id) == {"parcel": {"id": 2}, "other": 1}


@pytest.mark.contract("KW-18")
@pytest.mark.parametrize(
    "value", [[], {}, 0, False, True, None, "", "0", 1.5, -1, {"a": [{"b": [None, False]}]}, [[[]]], "ä☕🚀"], ids=ascii
)
def test_values_keep_their_types(service: WorkflowService, value: Any) -> None:
    run = RunFactory.create()
    service.update_run_state(run.id, "key", value)

    stored = service.get_run_state(run.id)
    assert stored == {"key": value}
    assert type(stored["key"]) is type(value)


@pytest.mark.contract("KW-19", "KW-20")
@pytest.mark.parametrize(
    "key",
    [
        "a.b",
        "$.a",
        "a[0]",
        "a'b",
        'a"b',
        "a\\b",
        "a`b",
        "{a}",
        "%s",
        "a%",
        "'; DROP TABLE workflow_runs; --",
        "",
        " ",
        "ä☕",
    ],
)
def test_a_key_is_one_key_whatever_it_looks_like(service: WorkflowService, key: str) -> None:
    run = RunFactory.create()
    service.update_run_state(run.id, "a", {"b": 1})
    service.update_run_state(run.id, key, 2)
    service.update_run_state(run.id, key, 3)

    assert service.get_run_state(run.id) == {"a": {"b": 1}, key: 3}


def test_a_run_without_a_state_gets_one(service: WorkflowService) -> None:
    run = RunFactory.create()
    WorkflowRun.objects.filter(pk=run.id).update(state=None)
    assert service.get_run_state(run.id) == {}

    assert service.update_run_state(run.id, "courier", "dhl")

    assert service.get_run_state(run.id) == {"courier": "dhl"}


def test_a_state_write_touches_no_other_run(service: WorkflowService) -> None:
    run, other = RunFactory.create(), RunFactory.create()
    service.update_run_state(run.id, "courier", "dhl")

    assert service.get_run_state(other.id) == {}


texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
# Floats have tests of their own below.
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(-1e15, 1e15, allow_subnormal=False).filter(lambda number: abs(number) > 1e-300)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(st.tuples(texts, values), max_size=8))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_writes_leaves_the_last_value_of_each_key(
    service: WorkflowService, writes: list[tuple[str, Any]]
) -> None:
    run = RunFactory.create()
    for key, value in writes:
        service.update_run_state(run.id, key, value)

    assert service.get_run_state(run.id) == dict(writes)


FLOATS = [1e15, 1e16, 1.2345678901234567e18, 1e19, 1e22, 1e23, 1e300, 1.7976931348623157e308, 5e-324, -1e20, 0.1, -0.0]


@pytest.mark.parametrize("number", FLOATS, ids=repr)
def test_a_float_reads_back_as_it_was(service: WorkflowService, number: float) -> None:
    run = RunFactory.create()
    service.update_run_state(run.id, "number", number)

    stored = service.get_run_state(run.id)["number"]
    assert type(stored) is float
    assert stored == number


@pytest.mark.parametrize("number", FLOATS, ids=repr)
def test_what_was_read_back_can_be_stored_again(service: WorkflowService, number: float) -> None:
    run = RunFactory.create()
    service.update_run_state(run.id, "number", number)

    assert service.update_run_state(run.id, "copy", service.get_run_state(run.id)["number"])
