"""What the backend changes of djongo: errors, values and queries are those that Django expects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import IntegrityError, NotSupportedError, OperationalError, models, transaction
from django.db.models import Count, Exists, F, OuterRef, Q
from django.db.models.functions import TruncYear
from hypothesis import given, settings, strategies

from example_project.databases import DJONGO_ENGINE
from pikku_storage.db import engine
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from tests.conformance.failing import failing
from tests.conformance.support import DATABASE, connection

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.settings_dict["ENGINE"] != DJONGO_ENGINE, reason="about djongo"),
]

AT = datetime(2026, 3, 2, 9, 30, 15, 123000, tzinfo=UTC)
TEXTS = ["a%c", "abc", "a.c", "a_c", "ABC", "a\\c", '{"a": "b"}', "a\nc", "(", "x abc"]
"""Each means something to LIKE, to a regular expression or to djongo."""


def new_run(pk: str, **values: Any) -> WorkflowRun:
    values = {"workflow": "w", "status": "running", "created_at": AT, "updated_at": AT, **values}
    return WorkflowRun.objects.create(id=pk, **values)


@pytest.fixture
def texts() -> None:
    for text in TEXTS:
        new_run(text)


def ids(rows: Any) -> set[str]:
    return set(rows.order_by().values_list("id", flat=True))


# -- what is looked for is text --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_is_looked_for_means_itself(texts: None, text: str) -> None:
    runs = WorkflowRun.objects
    assert ids(runs.filter(id__startswith=text)) == {each for each in TEXTS if each.startswith(text)}
    assert ids(runs.filter(id__endswith=text)) == {each for each in TEXTS if each.endswith(text)}
    assert ids(runs.filter(id__contains=text)) == {each for each in TEXTS if text in each}
    assert ids(runs.filter(id__icontains=text)) == {each for each in TEXTS if text.lower() in each.lower()}
    assert ids(runs.filter(id__iexact=text)) == {each for each in TEXTS if text.lower() == each.lower()}
    assert ids(runs.exclude(id__startswith=text)) == {each for each in TEXTS if not each.startswith(text)}


# -- queries that djongo by itself would refuse, or answer otherwise -------------------------------------------------


@pytest.fixture
def two_runs() -> None:
    new_run("a", owner_id="ada", output={"n": [1, {"deep": None}]})
    new_run("b", status="failed", workflow="other")
    for name, run in (("one", "a"), ("two", "a"), ("three", "b")):
        WorkflowStep.objects.create(id=name, run_id=run, step_name=name, status="pending", redrives=2)


QUERIES: dict[str, tuple[Callable[[], Any], Any]] = {
    "exists": (lambda: WorkflowRun.objects.filter(status="failed").exists(), True),
    "does not exist": (lambda: WorkflowRun.objects.filter(status="none").exists(), False),
    "order of a column that is shown": (
        lambda: list(WorkflowStep.objects.order_by("-id").values_list("id", flat=True)),
        ["two", "three", "one"],
    ),
    "order of a number that is counted": (
        lambda: list(WorkflowStep.objects.values_list("run_id").annotate(n=Count("id")).order_by("-n")),
        [("a", 2), ("b", 1)],
    ),
    "a subquery": (
        lambda: ids(WorkflowStep.objects.filter(run__in=WorkflowRun.objects.filter(workflow__in=["other", "none"]))),
        {"three"},
    ),
    "a subquery that finds nothing": (
        lambda: ids(WorkflowStep.objects.filter(run__in=WorkflowRun.objects.filter(workflow="none"))),
        set(),
    ),
    "a column of another table": (
        lambda: ids(WorkflowStep.objects.filter(run__status="running", redrives=2)),
        {"one", "two"},
    ),
    "another table and a choice": (
        lambda: ids(WorkflowStep.objects.filter(Q(run__status="failed") | Q(id="one"))),
        {"one", "three"},
    ),
    "neither": (lambda: ids(WorkflowRun.objects.exclude(Q(status="failed") | Q(owner_id="nobody"))), {"a"}),
    "not, of a column that may be null": (lambda: ids(WorkflowRun.objects.exclude(owner_id="ada")), {"b"}),
    "not both": (lambda: ids(WorkflowRun.objects.exclude(Q(status="failed") & ~Q(workflow="w"))), {"a"}),
    "not, of not, and something else": (
        lambda: ids(WorkflowRun.objects.filter(~(Q(status="failed") | ~(Q(workflow="w") & ~Q(owner_id="bob"))))),
        {"a"},
    ),
    "a slice, counted": (lambda: WorkflowStep.objects.order_by()[:2].count(), 2),
    "what is distinct, counted": (lambda: WorkflowStep.objects.order_by().values("run_id").distinct().count(), 2),
    "everything, changed": (lambda: WorkflowRun.objects.update(redrives=7), 2),
    "everything, deleted": (lambda: WorkflowStep.objects.all().delete()[0], 3),
    "JSON": (lambda: WorkflowRun.objects.get(pk="a").output, {"n": [1, {"deep": None}]}),
    "JSON that is not there": (lambda: WorkflowRun.objects.get(pk="b").output, None),
    "a time": (lambda: WorkflowRun.objects.get(pk="a").created_at, AT),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_answered_as_elsewhere(two_runs: None, name: str) -> None:
    ask, expected = QUERIES[name]
    assert ask() == expected


@pytest.mark.parametrize(
    "ask",
    [
        lambda: WorkflowRun.objects.update(redrives=F("redrives") + 1),
        lambda: list(WorkflowRun.objects.filter(Exists(WorkflowStep.objects.filter(run=OuterRef("pk"))))),
        lambda: list(WorkflowRun.objects.filter(Q(status="a") ^ Q(workflow="secret"))),
        lambda: list(WorkflowRun.objects.filter(output__n=1)),
        lambda: list(WorkflowRun.objects.annotate(year=TruncYear("created_at"))),
        lambda: WorkflowRun.objects.order_by().distinct().aggregate(models.Max("redrives")),
    ],
    ids=["F", "Exists", "XOR", "JSON lookup", "dates", "aggregate of a subquery"],
)
def test_what_it_cannot_do_is_refused(two_runs: None, ask: Any) -> None:
    before = list(WorkflowRun.objects.order_by("id").values())
    with pytest.raises(NotSupportedError, match="djongo") as caught:
        ask()
    assert "secret" not in str(caught.value), "parameters are nobody's business"
    assert list(WorkflowRun.objects.order_by("id").values()) == before


LEAVES: dict[str, tuple[Q, Callable[[Any], bool]]] = {
    "status": (Q(status="running"), lambda run: run.status == "running"),
    "status in": (Q(status__in=["failed", "none"]), lambda run: run.status in {"failed", "none"}),
    "owner": (Q(owner_id="ada"), lambda run: run.owner_id == "ada"),
    "no owner": (Q(owner_id__isnull=True), lambda run: run.owner_id is None),
    "few": (Q(redrives__lt=2), lambda run: run.redrives is not None and run.redrives < 2),
    "begins": (Q(workflow__startswith="o"), lambda run: run.workflow.startswith("o")),
    "between": (Q(redrives__range=(1, 2)), lambda run: run.redrives is not None and 1 <= run.redrives <= 2),
}
Condition: TypeAlias = tuple[Any, ...]
CONDITIONS = strategies.recursive(
    strategies.tuples(strategies.sampled_from(sorted(LEAVES))),
    lambda inner: strategies.one_of(
        strategies.tuples(strategies.just("not"), inner),
        strategies.tuples(strategies.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=5,
)


def as_query(condition: Condition) -> Q:
    name, *parts = condition
    if name == "not":
        return ~as_query(parts[0])
    if not parts:
        return LEAVES[name][0]
    left, right = map(as_query, parts)
    return left & right if name == "and" else left | right


def holds(condition: Condition, run: WorkflowRun) -> bool:
    name, *parts = condition
    if name == "not":
        return not holds(parts[0], run)
    if not parts:
        return LEAVES[name][1](run)
    return (all if name == "and" else any)(holds(part, run) for part in parts)


def test_any_condition_finds_what_meets_it() -> None:
    runs = [
        new_run(f"{workflow} {status} {owner}", workflow=workflow, status=status, owner_id=owner, redrives=redrives)
        for workflow in ("w", "other")
        for status in ("running", "failed")
        for owner, redrives in (("ada", None), (None, 1), ("bob", 3))
    ]

    @given(condition=CONDITIONS)
    @settings(max_examples=80, deadline=None, database=None)
    def check(condition: Condition) -> None:
        assert ids(WorkflowRun.objects.filter(as_query(condition))) == {run.id for run in runs if holds(condition, run)}

    check()


# -- keys, errors and transactions -----------------------------------------------------------------------------------


def test_a_key_that_is_taken_is_an_integrity_error(two_runs: None) -> None:
    with pytest.raises(IntegrityError):
        new_run("a")
    with pytest.raises(IntegrityError):
        WorkflowStep.objects.create(id="other", run_id="a", step_name="one", status="pending")
    with pytest.raises(IntegrityError):
        WorkflowRun.objects.bulk_create([WorkflowRun(id="c", workflow="w"), WorkflowRun(id="a", workflow="w")])


def test_keys_that_the_database_makes_count_up() -> None:
    first, second = (User.objects.create_user(name) for name in ("ada", "bob"))
    assert second.pk > first.pk > 0
    group = Group.objects.create(name="crew")
    group.user_set.add(first, second)
    permission = Permission.objects.filter(codename="view_user").get()
    group.permissions.add(permission)
    assert User.objects.filter(groups__name="crew", is_active=True).order_by("username").first() == first
    assert User.objects.get(pk=second.pk).has_perm("auth.view_user")


def test_a_transaction_has_no_effect_and_breaks_nothing() -> None:
    called: list[str] = []

    def fail_within() -> None:
        with transaction.atomic(using=DATABASE):
            new_run("a")
            transaction.on_commit(lambda: called.append("at once"), using=DATABASE)
            with pytest.raises(IntegrityError), transaction.atomic(using=DATABASE):
                new_run("a")
            new_run("b")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_within()
    assert called == ["at once"]
    assert ids(WorkflowRun.objects.all()) == {"a", "b"}


def test_a_server_that_is_away_is_an_operational_error(two_runs: None) -> None:
    with failing(1, "refused") as failed, pytest.raises(OperationalError):
        list(WorkflowRun.objects.all())
    assert failed.reached


def test_a_connection_that_was_closed_is_opened_again(two_runs: None) -> None:
    driver = connection.driver
    connection.close()
    assert WorkflowRun.objects.count() == 2
    assert connection.driver is driver, "the client stays"


# -- the engine ------------------------------------------------------------------------------------------------------


def test_a_read_takes_columns_of_another_table(two_runs: None) -> None:
    where = {"status": ["pending", "running"], "redrives": 2}
    rows = engine(DATABASE).read(WorkflowStep, where, ("id", "run__status", "run__created_at"), order_by=("id",))
    assert rows == [
        {"id": name, "run__status": status, "run__created_at": AT}
        for name, status in (("one", "running"), ("three", "failed"), ("two", "running"))
    ]
    assert engine(DATABASE).read(WorkflowStep, where, ("id",), order_by=("id",), limit=1) == [{"id": "one"}]


def test_documents_are_those_of_the_other_backend(two_runs: None) -> None:
    (document,) = connection.database["workflow_runs"].find({"_id": "a"})
    assert document["output"] == {"n": [1, {"deep": None}]}
    assert {type(value) for value in document.values()} <= {str, dict, datetime, int, bool, type(None), list}


def test_unique_constraints_and_descending_indexes_are_made() -> None:
    found = connection.database["workflow_step"].index_information()
    unique = [index["key"] for index in found.values() if index.get("unique")]
    assert len(unique) == 1, "a step has its name once in a run"
    directions = [
        direction
        for table in connection.database.list_collection_names()
        for index in connection.database[table].index_information().values()
        for column, direction in index["key"]
        if '"' in column or direction not in {1, -1}
    ]
    assert directions == []
