"""What an engine promises about operations, on every database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, transaction
from django.test.utils import CaptureQueriesContext

from pikku_storage.db import Engine, engine
from pikku_storage.db.clock import Clock
from pikku_storage.db.fields import PayloadField, encode
from pikku_storage.db.operations import Delete, Expired, Guard, Insert, InsertMany, KeepOr, Operation, OrNull, Update
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from tests.conformance.support import DATABASE, connection, needs_transactions

pytestmark = pytest.mark.django_db(transaction=True)

AT = datetime(2026, 3, 2, 9, 30, 15, 123_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ON_POSTGRESQL = connection.vendor == "postgresql"


@pytest.fixture
def db_engine() -> Engine:
    """The engine of this test run."""
    return engine(DATABASE)


def new_run(run_id: str, **values: Any) -> Insert:
    row = {"id": run_id, "workflow": "orders", "status": "running", "created_at": AT, "updated_at": AT, **values}
    return Insert(WorkflowRun, row)


def new_step(step_id: str, run_id: str = "run", **values: Any) -> Insert:
    row = {"id": step_id, "run_id": run_id, "step_name": step_id, "status": "pending", "current_attempt": 1}
    return Insert(WorkflowStep, {**row, "created_at": AT, "updated_at": AT, **values})


def change(run_id: str, where: Mapping[str, Any] | None = None, /, **values: Any) -> Update:
    return Update(WorkflowRun, {"id": run_id, **(where or {})}, values)


def stored(run_id: str = "run") -> WorkflowRun:
    return WorkflowRun.objects.get(pk=run_id)


def step_ids() -> list[str]:
    return list(WorkflowStep.objects.order_by("id").values_list("id", flat=True))


GUARD = Guard(WorkflowRun, {"id": "run", "status": ["running", "suspended"]})


@pytest.fixture
def run(db_engine: Engine) -> None:
    """A run that is running, with nobody inside."""
    assert db_engine.apply(new_run("run")) == (1,)


# -- together, or not at all -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "writes",
    [
        [new_step("a")],
        [new_step("a"), new_step("b")],
        [change("run", workflow="changed")],
        [change("run", workflow="changed"), new_step("a")],
        [change("run", workflow="changed"), change("other", redrives=7), new_step("a")],
        [Delete(WorkflowRun, {"id": "run"})],
    ],
    ids=lambda writes: " ".join(type(write).__name__ for write in writes),
)
def test_a_guard_decides_about_everything(db_engine: Engine, run: None, writes: list[Operation]) -> None:
    ended = Guard(WorkflowRun, {"id": "run", "status": "completed"})
    db_engine.apply(new_run("other"))
    assert db_engine.apply(ended, *writes) == (0,) * (len(writes) + 1)
    assert (stored().workflow, stored("other").redrives, step_ids()) == ("orders", None, [])

    assert db_engine.apply(GUARD, *writes) == (1,) * (len(writes) + 1)
    assert step_ids() == [write.values["id"] for write in writes if isinstance(write, Insert)]


def test_the_first_write_decides_about_the_rest(db_engine: Engine, run: None) -> None:
    db_engine.apply(new_run("other"))
    missed = change("run", {"status": "completed"}, workflow="changed")
    assert db_engine.apply(missed, new_step("a"), change("other", redrives=7)) == (0, 0, 0)
    assert db_engine.apply(GUARD, missed, new_step("a"), change("other", redrives=7)) == (0, 0, 0, 0)
    assert (stored().workflow, stored("other").redrives, step_ids()) == ("orders", None, [])


def test_a_later_write_that_finds_nothing_stops_nobody(db_engine: Engine, run: None) -> None:
    missed = change("nobody", workflow="changed")
    assert db_engine.apply(change("run", redrives=7), missed, new_step("a")) == (1, 0, 1)
    assert db_engine.apply(GUARD, change("run", redrives=8), missed, new_step("b")) == (1, 1, 0, 1)
    assert (stored().redrives, step_ids()) == (8, ["a", "b"])


def test_what_is_deleted_is_what_meets_the_conditions(db_engine: Engine, run: None) -> None:
    db_engine.apply(new_step("a"), new_step("b"), new_step("c", status="running"))
    assert db_engine.apply(Delete(WorkflowStep, {"id": ["a", "c", "nobody"], "status": "pending"})) == (1,)
    assert step_ids() == ["b", "c"]
    assert db_engine.apply(
        Delete(WorkflowStep, {"id": "b", "created_at": Expired(AT - timedelta(milliseconds=1))})
    ) == (0,)
    assert db_engine.apply(Delete(WorkflowStep, {"id": "nobody"})) == (0,)
    assert db_engine.apply(Delete(WorkflowStep, {"run_id": "run"})) == (2,)
    assert db_engine.apply(Delete(WorkflowRun, {"id": "run"})) == (1,)
    assert not WorkflowRun.objects.exists()


def test_many_rows_have_their_columns_in_any_order(db_engine: Engine) -> None:
    first = {"id": "1", "workflow": "w", "status": "running", "input": {"n": 1}, "created_at": AT, "updated_at": AT}
    second = dict(reversed([*{**first, "id": "2", "workflow": "v", "created_at": AT + SECOND}.items()]))

    db_engine.apply(InsertMany(WorkflowRun, {}, [first, second]))

    rows = WorkflowRun.objects.order_by("id").values(*first)
    assert list(rows) == [first, second]


@needs_transactions
def test_a_write_to_many_rows_is_followed_by_one_insert(db_engine: Engine, run: None) -> None:
    db_engine.apply(new_step("a"), new_step("b"))
    every = Update(WorkflowStep, {"run_id": "run", "status": "pending"}, {"status": "scheduled"})
    assert db_engine.apply(every, new_step("c"), change("run", redrives=1)) == (2, 1, 1)
    of_one_status = Guard(WorkflowStep, {"run_id": "run", "status": "scheduled"})
    assert db_engine.apply(of_one_status, new_step("d")) == (1, 1)
    assert step_ids() == ["a", "b", "c", "d"]


@needs_transactions
@pytest.mark.parametrize("guarded", [False, True])
def test_a_violation_later_on_undoes_what_came_before(db_engine: Engine, run: None, guarded: bool) -> None:
    db_engine.apply(new_step("taken"))
    writes: list[Operation] = [change("run", workflow="changed"), new_step("a"), new_step("taken")]
    with pytest.raises(IntegrityError):
        db_engine.apply(*([GUARD] if guarded else []), *writes)
    assert (stored().workflow, step_ids()) == ("orders", ["taken"])


@needs_transactions
def test_a_violation_inside_a_savepoint_leaves_the_transaction_usable(db_engine: Engine, run: None) -> None:
    with transaction.atomic():
        db_engine.apply(change("run", redrives=1))
        with pytest.raises(IntegrityError), db_engine.savepoint():
            db_engine.apply(new_step("a"), new_step("a"))
        db_engine.apply(new_step("b"))
    assert (stored().redrives, step_ids()) == (1, ["b"])


@pytest.mark.parametrize("operations", [[GUARD], [change("run", redrives=1), GUARD]], ids=["alone", "second"])
def test_a_guard_in_the_wrong_place_is_refused(db_engine: Engine, run: None, operations: list[Operation]) -> None:
    with pytest.raises(ValueError, match="guard"):
        db_engine.apply(*operations)
    assert stored().redrives is None


# -- conditions and values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "condition", "holds"),
    [
        ("pass_token", None, None, True),
        ("pass_token", "t", None, False),
        ("pass_token", "t", "t", True),
        ("pass_token", None, "t", False),
        ("pass_token", "b", ["a", "b"], True),
        ("pass_token", "b", ("b",), True),
        ("pass_token", "c", ["a", "b"], False),
        ("pass_token", None, ["a", "b"], False),
        ("pass_token", 'a"b,{c}\\', ['a"b,{c}\\', "NULL", ""], True),
        ("redrives", 3, [1, 2, 3], True),
        ("redrives", 3, [1, 2], False),
        ("due_at", AT, [AT, AT + SECOND], True),
        ("due_at", AT, AT, True),
        ("due_at", AT, AT + timedelta(microseconds=999), True),
        ("due_at", AT, AT + timedelta(milliseconds=1), False),
        ("due_at", None, Expired(AT), True),
        ("due_at", AT, Expired(AT), True),
        ("due_at", AT - SECOND, Expired(AT), True),
        ("due_at", AT + timedelta(milliseconds=1), Expired(AT), False),
        ("redrives", None, OrNull(1), True),
        ("redrives", 1, OrNull(1), True),
        ("redrives", 2, OrNull(1), False),
        ("inline", True, True, True),
        ("inline", False, True, False),
        ("inline", None, None, True),
    ],
)
def test_a_condition_means_the_same_in_each_place(
    db_engine: Engine, column: str, value: Any, condition: Any, holds: bool
) -> None:
    """Of a guard, of a single update, and of one that decides about more."""
    db_engine.apply(new_run("run"))
    # A new document has no null in some fields.
    db_engine.apply(change("run", **{column: value}))
    where = {column: condition}

    assert db_engine.apply(change("run", where, workflow="a")) == (int(holds),)
    assert db_engine.apply(change("run", where, workflow="b"), new_step("b")) == (int(holds),) * 2
    assert db_engine.apply(Guard(WorkflowRun, {"id": "run", **where}), new_step("c")) == (int(holds),) * 2
    assert (stored().workflow, step_ids()) == (("b", ["b", "c"]) if holds else ("orders", []))


def test_conditions_all_have_to_hold(db_engine: Engine, run: None) -> None:
    assert db_engine.apply(change("run", {"pass_token": None, "redrives": OrNull(1)}, redrives=1)) == (1,)
    assert db_engine.apply(change("run", {"pass_token": None, "redrives": 2}, redrives=3)) == (0,)


@pytest.mark.parametrize(("before", "after"), [(None, 1), (0, 0), (4, 4)])
def test_keep_or(db_engine: Engine, before: int | None, after: int) -> None:
    db_engine.apply(new_run("run", redrives=before))
    db_engine.apply(change("run", redrives=KeepOr(1)))
    assert stored().redrives == after
    db_engine.apply(new_step("a", current_attempt=before))
    db_engine.apply(change("run", redrives=9), Update(WorkflowStep, {"id": "a"}, {"current_attempt": KeepOr(1)}))
    assert WorkflowStep.objects.get().current_attempt == after


@pytest.mark.parametrize("length", [1, 2, 500])
def test_a_list_of_any_length(db_engine: Engine, run: None, length: int) -> None:
    ids = [f"step {number:03}" for number in range(length)]
    db_engine.apply(new_step("other"), *[new_step(step_id) for step_id in ids[:3]])
    update = Update(WorkflowStep, {"id": ids}, {"status": "scheduled"})
    assert db_engine.apply(update) == (min(length, 3),)
    assert db_engine.apply(update, change("run", redrives=1)) == (min(length, 3), 1)
    assert WorkflowStep.objects.get(pk="other").status == "pending"


def test_the_same_columns_with_other_values_are_no_other_values(db_engine: Engine) -> None:
    """Text is kept by shape; values never are."""
    for number in range(8):
        run_id, redrives = f"run {number}", number or None
        db_engine.apply(new_run(run_id, redrives=redrives, due_at=AT if number % 2 else None))
        db_engine.apply(change(run_id, {"redrives": redrives}, error={"n": number}), new_step(f"step {number}", run_id))
    assert [stored(f"run {number}").error for number in range(8)] == [{"n": number} for number in range(8)]
    assert [stored(f"run {number}").redrives for number in range(8)] == [None, *range(1, 8)]


# -- what is written is what is read -----------------------------------------------------------------------------------

TEXTS = [
    "",
    "'",
    '"',
    "''; --",
    "100 %",
    "%s",
    "%(a)s",
    "%%",
    "?",
    "\\",
    "\\'",
    "{}",
    "{0}",
    "ä☕🚀",
    "a\nb\tc",
    "$1",
    "NULL",
]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_text_is_kept(db_engine: Engine, text: str) -> None:
    db_engine.apply(new_run("run", last_worker=text, output=[text, {text: text}]))
    db_engine.apply(change("run", {"last_worker": text}, wake_token=text[:8]), new_step("a", data=text))
    db_engine.apply(Guard(WorkflowRun, {"last_worker": [text]}), new_step("b", data={text: [text]}))

    assert (stored().last_worker, stored().wake_token, stored().output) == (text, text[:8], [text, {text: text}])
    assert list(WorkflowStep.objects.order_by("id").values_list("data", flat=True)) == [text, {text: [text]}]


JSON = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    0.5,
    1e-7,
    1e20,
    -1.2345678901234567e18,
    1.7976931348623157e308,
    5e-324,
    "",
    "null",
    [],
    {},
    [None],
    {"a": None},
    {"a": [{"b": [None, {"c": None}]}], "": {}},
    ["1e+20", {"1e+20": 1e20, 'q"1e+20"\\': [1e20, "\\", 1e21]}],
    [[1, "x"], ["y", 2.5]],
]


@pytest.mark.parametrize("value", JSON, ids=ascii)
def test_json_is_kept(db_engine: Engine, value: Any) -> None:
    """By a single insert, an insert that depends on another write, an update, and the ORM."""
    db_engine.apply(new_run("run", output=value, error=value))
    db_engine.apply(change("run", error=[value]), new_step("a", result=value, data=[value]))
    WorkflowRun.objects.create(pk="orm", workflow="orders", output=value, created_at=AT, updated_at=AT)
    WorkflowRun.objects.filter(pk="orm").update(error=[value])

    step = WorkflowStep.objects.get()
    seen = [stored().output, stored("orm").output, step.result]
    assert seen == [value] * 3
    assert [stored().error, stored("orm").error, step.data] == [[value]] * 3
    assert [type(each) for each in seen] == [type(value)] * 3
    assert json.dumps(step.data, sort_keys=True) == json.dumps([value], sort_keys=True), "numbers have their types"
    # To MongoDB a list with a null in it is null as well.
    if connection.vendor != "mongodb" or value != [None]:
        assert WorkflowRun.objects.filter(output__isnull=True).count() == (2 if value is None else 0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e20, "100000000000000000000.0"),
        ([1.5e16, -1e16], "[15000000000000000.0, -10000000000000000.0]"),
        ({"1e+20": "1e+20"}, '{"1e+20": "1e+20"}'),
        (['"1e+20', 1e22, "\\"], r'["\"1e+20", 10000000000000000000000.0, "\\"]'),
        ([1e-7, 10**20], "[1e-07, 100000000000000000000]"),
    ],
)
def test_large_floats_are_written_as_digits(value: Any, text: str) -> None:
    assert encode(value) == text


def test_the_encoder_is_no_matter_of_migrations() -> None:
    _, path, args, options = PayloadField("output", null=True).deconstruct()
    assert (path, args, options) == (
        "pikku_storage.db.fields.PayloadField",
        [],
        {"verbose_name": "output", "null": True},
    )
    assert PayloadField(null=True).clone().encoder is PayloadField().encoder is not None


@pytest.mark.parametrize(
    "moment",
    [
        AT + timedelta(microseconds=999),
        (AT + timedelta(microseconds=1)).astimezone(timezone(timedelta(hours=5, minutes=30))),
        AT.replace(tzinfo=timezone(timedelta(0), "also UTC")),
    ],
)
def test_times_are_cut_to_milliseconds(db_engine: Engine, moment: datetime) -> None:
    db_engine.apply(new_run("run", due_at=moment))
    db_engine.apply(change("run", {"due_at": moment}, pass_until=moment), new_step("a", due_at=moment))
    db_engine.merge_json_key(WorkflowRun, "run", "state", "key", 1, moment)

    run, step = stored(), WorkflowStep.objects.get()
    assert [run.due_at, run.pass_until, run.updated_at, step.due_at] == [AT] * 4


def test_text_that_is_too_long_is_never_cut(db_engine: Engine, run: None) -> None:
    if connection.vendor in {"sqlite", "mongodb"}:
        pytest.skip("the database has no limit")
    for operations in ([new_step("x" * 256)], [change("run", redrives=1), new_step("a", step_name="x" * 256)]):
        with pytest.raises(Exception, match="too long"):
            db_engine.apply(*operations)
    assert (stored().redrives, step_ids()) == (None, [])


# -- durable -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operations",
    [
        [change("run", redrives=7)],
        [change("run", redrives=7), new_step("a")],
        [GUARD, change("run", redrives=7)],
        [GUARD, change("run", redrives=7), new_step("a")],
    ],
    ids=lambda operations: " ".join(type(operation).__name__ for operation in operations),
)
def test_what_is_not_durable_is_written_all_the_same(db_engine: Engine, run: None, operations: list[Operation]) -> None:
    assert db_engine.apply(*operations, durable=False) == (1,) * len(operations)
    assert stored().redrives == 7
    db_engine.connection.close()
    assert stored().redrives == 7
    missed = Guard(WorkflowRun, {"id": "run", "status": "completed"})
    assert db_engine.apply(missed, change("run", redrives=8), durable=False) == (0, 0)


def _synchronous_commit() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        return str((cursor.fetchone() or [""])[0])


@pytest.mark.skipif(not ON_POSTGRESQL, reason="the option means something on PostgreSQL only")
def test_only_the_write_itself_is_relaxed(db_engine: Engine, run: None) -> None:
    normal = _synchronous_commit()
    assert normal != "off"
    with CaptureQueriesContext(connection) as seen:
        db_engine.apply(change("run", redrives=1), durable=False)
        db_engine.apply(change("run", redrives=2), new_step("a"), durable=False)
        assert _synchronous_commit() == normal
    assert [("synchronous_commit', 'off'" in query["sql"]) for query in seen] == [True, True, False]

    with transaction.atomic():
        db_engine.apply(change("run", redrives=3), durable=False)
        db_engine.apply(change("run", redrives=4), new_step("b"), durable=False)
        assert _synchronous_commit() == normal, "somebody's transaction is theirs"


# -- one key of a JSON object ------------------------------------------------------------------------------------------

KEYS = [
    "a",
    "",
    " ",
    "a.b",
    "$.a",
    "a[0]",
    "a'b",
    'a"b',
    "a\\b",
    "{a}",
    "{}",
    "%s",
    "100 %",
    "?",
    "ä☕🚀",
    "1e+20",
    "null",
]


@pytest.mark.parametrize("state", [None, {}, {"other": [1]}], ids=repr)
@pytest.mark.parametrize("key", KEYS, ids=ascii)
def test_a_key_is_set_whatever_it_looks_like(db_engine: Engine, key: str, state: dict[str, Any] | None) -> None:
    db_engine.apply(new_run("run", state=state))
    for value in (1e20, {"a": None, key: [key]}, None):
        assert db_engine.merge_json_key(WorkflowRun, "run", "state", key, value, AT + SECOND) == 1
        assert stored().state == {**(state or {}), key: value}
    assert stored().updated_at == AT + SECOND
    assert db_engine.merge_json_key(WorkflowRun, "nobody", "state", key, 1, AT) == 0


def test_a_key_is_set_while_rows_are_being_read(db_engine: Engine, run: None) -> None:
    for number in range(5):
        db_engine.apply(new_run(f"run {number}", state={}))
    with transaction.atomic():
        for row in WorkflowRun.objects.order_by("id").iterator(chunk_size=1):
            assert db_engine.merge_json_key(WorkflowRun, row.pk, "state", "seen", row.pk, AT) == 1
    assert [row.state["seen"] for row in WorkflowRun.objects.all()] == [row.pk for row in WorkflowRun.objects.all()]


def test_a_key_is_set_on_a_new_connection(db_engine: Engine, run: None) -> None:
    for number in range(2):
        assert db_engine.merge_json_key(WorkflowRun, "run", "state", f"key {number}", number, AT) == 1
        db_engine.connection.close()
    assert stored().state == {"key 0": 0, "key 1": 1}


# -- time --------------------------------------------------------------------------------------------------------------


def test_the_servers_time_is_what_counts(db_engine: Engine) -> None:
    told = db_engine.server_time()
    here = datetime.now(UTC)
    assert told is None or (told.tzinfo is UTC and told.microsecond % 1000 == 0)
    assert abs((told or here) - here) < timedelta(hours=24), "a server's clock may be off, not its time zone"
    assert db_engine.now().microsecond % 1000 == 0


def test_a_clock_goes_on_from_what_the_server_told() -> None:
    ahead = timedelta(hours=3)
    clock = Clock(lambda: datetime.now(UTC) + ahead)
    first, second = clock.now(), clock.now()
    assert timedelta() <= second - first < SECOND
    assert abs(first - datetime.now(UTC) - ahead) < SECOND


def test_a_clock_counts_on_while_the_server_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = timedelta(hours=3)
    answers: list[datetime | None] = [datetime.now(UTC) + ahead]

    def ask() -> datetime | None:
        if not answers:
            raise OperationalError("gone away")
        return answers.pop()

    clock = Clock(ask)
    monkeypatch.setattr("pikku_storage.db.clock.ASK_AGAIN_AFTER", -1.0)
    first, second = clock.now(), clock.now()
    assert timedelta() <= second - first < SECOND
    assert abs(first - datetime.now(UTC) - ahead) < SECOND

    with pytest.raises(OperationalError):
        Clock(ask).now()


# -- taking away -------------------------------------------------------------------------------------------------------


def test_a_delete_takes_away_what_meets_its_condition_and_counts_it(db_engine: Engine, run: None) -> None:
    for step_id in ("a", "b", "c"):
        db_engine.apply(new_step(step_id))

    assert db_engine.apply(GUARD, Delete(WorkflowStep, {"run_id": "run", "id": ["a", "b"]})) == (2, 2)
    assert step_ids() == ["c"]
    assert db_engine.apply(Delete(WorkflowStep, {"id": "gone"})) == (0,)
    assert db_engine.apply(change("run", workflow="x"), Delete(WorkflowStep, {"id": "c"})) == (1, 1)
    assert step_ids() == []
