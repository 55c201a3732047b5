"""MongoDB shared with another program: what it wrote is read, claimed and gone on with, and what we write has its shape
(contract tables.md §3 and §4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from pikku_storage.access.service import ScopeService
from pikku_storage.access.sessions import SessionStore
from pikku_storage.agents.models import AgentWorkingMemory
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.conf import APP_LABELS
from pikku_storage.db import clock
from pikku_storage.deployments.service import DeploymentService
from pikku_storage.exceptions import WorkflowStepFunctionMismatchError
from pikku_storage.secrets.service import SecretService
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.failing import failing
from tests.conformance.other_program import OtherProgram
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import DATABASE, MINUTE, attempts_of, connection, step_of

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "mongodb", reason="about MongoDB"),
]

if connection.vendor == "mongodb":
    from bson import Int64, ObjectId

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)
TEXT, TEXT_OR_NULL, TIME, TIME_OR_NULL = (str,), (str, NoneType), (datetime,), (datetime, NoneType)
NUMBER, FLAG, OBJECT, LIST = (int,), (bool,), (dict,), (list,)
JSON = (dict, list, str, int, float, bool, NoneType)
SHAPES: dict[str, dict[str, tuple[type, ...]]] = {
    "workflow_runs": {
        "_id": TEXT,
        "workflow": TEXT,
        "status": TEXT,
        "input": JSON,
        "output": JSON,
        "error": (dict, NoneType),
        "state": OBJECT,
        "inline": FLAG,
        "graphHash": TEXT_OR_NULL,
        "deterministic": FLAG,
        "plannedSteps": LIST,
        "wire": (dict, NoneType),
        "createdAt": TIME,
        "updatedAt": TIME,
    },
    "workflow_step": {
        "_id": TEXT,
        "workflowRunId": TEXT,
        "stepName": TEXT,
        "rpcName": TEXT_OR_NULL,
        "data": JSON,
        "status": TEXT,
        "result": JSON,
        "error": (dict, NoneType),
        "branchTaken": TEXT_OR_NULL,
        "retries": (int, NoneType),
        "retryDelay": TEXT_OR_NULL,
        "fromStepName": TEXT_OR_NULL,
        "createdAt": TIME,
        "updatedAt": TIME,
    },
    "workflow_step_history": {
        "_id": TEXT,
        "workflowStepId": TEXT,
        "status": TEXT,
        "result": JSON,
        "error": (dict, NoneType),
        "createdAt": TIME,
        "runningAt": TIME_OR_NULL,
        "scheduledAt": TIME_OR_NULL,
        "succeededAt": TIME_OR_NULL,
        "failedAt": TIME_OR_NULL,
    },
    "workflow_versions": {
        "_id": TEXT,
        "workflowName": TEXT,
        "graphHash": TEXT,
        "graph": OBJECT,
        "source": TEXT,
        "status": TEXT,
        "createdAt": TIME,
    },
    "agent_threads": {
        "_id": TEXT,
        "resourceId": TEXT,
        "title": TEXT_OR_NULL,
        "metadata": (dict, NoneType),
        "createdAt": TIME,
        "updatedAt": TIME,
    },
    "agent_message": {"_id": TEXT, "threadId": TEXT, "role": TEXT, "content": TEXT_OR_NULL, "createdAt": TIME},
    "agent_tool_call": {
        "_id": TEXT,
        "threadId": TEXT,
        "messageId": TEXT,
        "runId": TEXT_OR_NULL,
        "toolName": TEXT,
        "args": OBJECT,
        "result": TEXT_OR_NULL,
        "approvalStatus": TEXT_OR_NULL,
        "approvalType": TEXT_OR_NULL,
        "agentRunId": TEXT_OR_NULL,
        "displayToolName": TEXT_OR_NULL,
        "displayArgs": JSON,
        "createdAt": TIME,
    },
    "agent_working_memory": {"_id": TEXT, "id": TEXT, "scope": TEXT, "data": OBJECT, "updatedAt": TIME},
    "agent_run": {
        "_id": TEXT,
        "agentName": TEXT,
        "threadId": TEXT,
        "resourceId": TEXT,
        "status": TEXT,
        "errorMessage": TEXT_OR_NULL,
        "suspendReason": TEXT_OR_NULL,
        "missingRpcs": (list, NoneType),
        "usageInputTokens": NUMBER,
        "usageOutputTokens": NUMBER,
        "usageModel": TEXT,
        "createdAt": TIME,
        "updatedAt": TIME,
    },
    "agent_run_score": {
        "_id": TEXT,
        "runId": TEXT,
        "scorerName": TEXT,
        "score": (float, int),
        "reason": TEXT_OR_NULL,
        "metadata": (dict, NoneType),
        "createdAt": TIME,
    },
    "channels": {
        "_id": TEXT,
        "channelName": TEXT,
        "createdAt": TIME,
        "openingData": OBJECT,
        "pikkuUserId": TEXT_OR_NULL,
        "lastWire": TIME,
    },
    "channel_subscriptions": {"_id": TEXT, "channelId": TEXT, "topic": TEXT},
    "pikkuUserSessions": {"_id": TEXT, "session": OBJECT, "createdAt": TIME, "updatedAt": TIME},
    "pikku_deployments": {
        "_id": TEXT,
        "endpoint": TEXT,
        "functions": LIST,
        "lastHeartbeat": TIME,
        "createdAt": TIME,
    },
    "secrets": {
        "_id": TEXT,
        "ciphertext": TEXT,
        "wrappedDek": TEXT,
        "keyVersion": NUMBER,
        "createdAt": TIME,
        "updatedAt": TIME,
    },
    "secret_kek_salts": {"_id": NUMBER, "salt": TEXT, "createdAt": TIME},
    "secrets_audit": {"_id": TEXT, "secretKey": TEXT, "action": TEXT, "performedAt": TIME},
}
"""By collection: what each field of the other program's documents may be, exactly, or it is ours and may be anything
or missing. A long integer is none of these types."""
LATER: dict[str, dict[str, tuple[type, ...]]] = {"workflow_step": {"childRunId": TEXT}, "channels": {"state": JSON}}
"""Fields of theirs that are absent until they have a value."""


@pytest.fixture
def theirs(db: None) -> OtherProgram:
    return OtherProgram(connection.database)


@function(name="documents.add", retries=1, retry_delay=0)
def add(number: int) -> dict[str, Any]:
    if number < 0 and current_step().attempt == 1:
        raise ValueError("not the first time")
    return {"sum": number + 1, "attempt": current_step().attempt}


@function(name="documents.add_queued", queued=True, retries=1, retry_delay=0)
def add_queued(number: int) -> dict[str, Any]:
    return add.__wrapped__(number)  # type: ignore[attr-defined,no-any-return]


@pytest.fixture(autouse=True)
def sums(_own_registry: None) -> Any:
    @workflow(name="documents.sums")
    def sums(flow: Flow, number: int = 1) -> Any:
        flow.set_state("began_with", number)
        first = flow.do("first", add, {"number": number})
        return flow.do("second", add, {"number": first["sum"]})

    return sums


# -- what we write -----------------------------------------------------------------------------------------------------


@contextmanager
def every_kind_written(sums: Any, outbox: RecordingDispatcher) -> Iterator[None]:
    """A document of each shared collection, made by our services."""
    sums.run({"number": -3})
    WorkflowService().create_run("w", {}, planned_steps=[{"stepName": "a"}])

    @workflow(name="documents.queued")
    def queued(flow: Flow) -> None:
        flow.map("each", add_queued, [{"number": number} for number in (1, -2)])
        flow.sleep("nap", "1ms")
        flow.approval("fine?")

    run = queued.start()
    with clock.travel(MINUTE):
        outbox.deliver()
    assert run.status == "suspended"

    agents = AgentStorageService()
    agents.create_thread("ada", thread_id="t")
    agents.create_thread("ada", thread_id="u", metadata={"a": [1]})
    call = {"id": "c", "name": "refund", "args": {"order": {"id": 7}}}
    agents.save_messages(
        "t", [{"id": "m", "role": "assistant", "toolCalls": [call]}, {"id": "n", "role": "user", "content": "ü"}]
    )
    agent_run = agents.create_run(agent_name="x", thread_id="t", resource_id="ada")
    agents.update_run(
        agent_run, {"status": "suspended", "pendingApprovals": [{"type": "tool-call", "toolCallId": "c"}]}
    )
    agents.save_working_memory("ada", "resource", {"n": 1})
    agents.save_score(agent_run, "polite", 0.5)
    channels = ChannelStore()
    channels.add_channel("a", "chat")
    channels.add_channel("b", "chat", {"room": 1}, pikku_user_id="ada")
    channels.set_state("b", {"n": 1})
    EventHubStore().subscribe("news", "a")
    SessionStore().set("ada", {"language": {"ui": "de"}})
    deployments = DeploymentService()
    deployments.start("one", "http://one", ["a"])
    SecretService().set_secret("API_KEY", "s")
    SecretService(audit=True).delete_secret("API_KEY")
    SecretService().set_secret("API_KEY", "s")
    yield
    deployments.stop()


def test_what_we_write_has_their_shape(sums: Any, outbox: RecordingDispatcher, use_keys: Callable[..., None]) -> None:
    use_keys()
    wrong, found = [], {}
    with every_kind_written(sums, outbox):
        for collection, shape in SHAPES.items():
            documents = list(connection.database[collection].find())
            found[collection] = len(documents)
            allowed = {**shape, **LATER.get(collection, {})}
            for document in documents:
                wrong += [f"{collection}.{name} is missing" for name in shape if name not in document]
                wrong += [
                    f"{collection}.{name} is {document[name]!r}"
                    for name, types in allowed.items()
                    if name in document and type(document[name]) not in types
                ]
    assert wrong == []
    assert [collection for collection, count in found.items() if not count] == []


def test_what_is_ours_in_a_new_document_has_a_value() -> None:
    run_id = WorkflowService().create_run("w", {})
    document = connection.database["workflow_runs"].find_one({"_id": run_id})
    ours = document.keys() - SHAPES["workflow_runs"].keys()
    assert ours
    assert {name: document[name] for name in ours if document[name] is None} == {}


def test_all_fields_are_named_in_camel_case() -> None:
    for model in apps.get_models():
        if model._meta.app_label.startswith(APP_LABELS) and not model._meta.proxy:
            columns = {str(field.column) for field in model._meta.local_concrete_fields}
            assert {name for name in columns if "_" in name[1:]} == set(), model
            assert "_id" in columns, model


def test_integers_have_as_many_bits_as_they_need() -> None:
    agents = AgentStorageService()
    agents.create_thread("ada", thread_id="t")
    for tokens, kind in ((2**31 - 1, int), (2**31, Int64)):
        usage = {"inputTokens": tokens, "outputTokens": 0, "model": "m"}
        run_id = agents.create_run({"agentName": "x", "threadId": "t", "resourceId": "ada", "usage": usage})
        document = connection.database["agent_run"].find_one({"_id": run_id})
        assert type(document["usageInputTokens"]) is kind
        assert agents.get_run(run_id).usage.input_tokens == tokens  # type: ignore[union-attr]


def test_no_two_attempts_of_a_step_begin_at_the_same_time() -> None:
    """The other program knows the newest by that."""

    @function(name="documents.hasty", retries=5, retry_delay=0)
    def hasty() -> None:
        if current_step().attempt < 5:
            raise ValueError("once more")

    @workflow(name="documents.hurry")
    def hurry(flow: Flow) -> None:
        flow.do("s", hasty)

    with clock.passing(_Standing()):
        run = hurry.run()
    begun = [entry.created_at for entry in attempts_of(run.id, "s")]
    assert len(begun) == 5
    assert sorted(set(begun)) == begun


class _Standing(clock.Time):
    """Time passes while somebody waits, and only then."""

    def __init__(self) -> None:
        self.at = AT

    def now(self, told: Callable[[], datetime]) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


# -- indexes and migrations --------------------------------------------------------------------------------------------


def test_their_indexes_and_ours_are_no_obstacle_to_each_other(theirs: OtherProgram) -> None:
    """Whoever comes first. The server refuses an index that is there under another name."""
    theirs.init()
    connection.database.client.drop_database("documents_shared")
    shared = OtherProgram(connection.database.client["documents_shared"])
    try:
        shared.init()
        wanted = {
            name: {
                index: (list(about["key"]), about.get("unique", False))
                for index, about in shared.database[name].index_information().items()
            }
            for name in shared.database.list_collection_names()
        }
    finally:
        connection.database.client.drop_database("documents_shared")
    assert len(wanted) > 10
    for collection, indexes in wanted.items():
        there = connection.database[collection].index_information()
        for name, (key, unique) in indexes.items():
            assert name in there, f"{collection} lacks {name}"
            assert (list(there[name]["key"]), there[name].get("unique", False)) == (key, unique)


def test_a_database_that_another_program_has_filled_can_be_migrated(theirs: OtherProgram) -> None:
    """Also where an index of another name or kind is in the way."""
    runs, steps, answers = (connection.database[f"workflow_{name}"] for name in ("runs", "step", "answers"))
    for collection in connection.database.list_collection_names():
        if collection in SHAPES:
            connection.database[collection].drop()
    theirs.init()
    run_id = theirs.create_run("w")
    steps.drop_index("workflowRunId_1")
    steps.create_index("workflowRunId", name="of_the_run")
    answers.drop_index("workflow_answers_ordinal_unique")
    answers.create_index("stepName", name="workflow_answers_ordinal_unique", sparse=True)

    try:
        call_command("migrate", "pikku_workflows", "zero", database=DATABASE, verbosity=0)
        assert runs.count_documents({"_id": run_id}) == 1
    finally:
        call_command("migrate", database=DATABASE, verbosity=0)
    assert WorkflowRun.objects.filter(pk=run_id).exists()
    assert {"workflowRunId_1", "idx_workflow_step_run_status"} <= steps.index_information().keys()
    assert "of_the_run" not in steps.index_information()
    assert answers.index_information()["workflow_answers_ordinal_unique"]["unique"] is True


# -- what the other program writes -------------------------------------------------------------------------------------


def test_a_run_of_theirs_is_carried_on_to_its_end(theirs: OtherProgram) -> None:
    """It has done the first step, and its second one waits."""
    run_id = theirs.create_run("documents.sums", {"number": 5}, wire={"type": "http", "pikkuUserId": "ada"})
    theirs.set_state(run_id, "mine", {"since": AT, "by": ObjectId("65f0c0ffee0123456789abcd"), "n": Int64(4)})
    theirs.succeed(str(theirs_claimed(theirs, run_id, "first", {"number": 5})), {"sum": 41})
    theirs.insert_step(run_id, "second", "documents.add", {"number": 41})

    service = WorkflowService()
    run = service.get_run(run_id)
    assert run is not None
    assert (run.status, run.owner_id, run.planned_steps, run.inline) == ("running", "ada", None, False)
    assert service.get_run_state(run_id)["mine"] == {
        "since": "2026-03-02T09:00:00.000Z",
        "by": "65f0c0ffee0123456789abcd",
        "n": 4,
    }
    service.orchestrate_workflow(run_id)

    assert theirs.find("workflow_runs", _id=run_id)[0]["status"] == "completed"
    assert theirs.find("workflow_runs", _id=run_id)[0]["output"] == {"sum": 42, "attempt": 1}
    assert [(step["stepName"], step["status"]) for step in theirs.find("workflow_step", workflowRunId=run_id)] == [
        ("first", "succeeded"),
        ("second", "succeeded"),
    ]
    # The attempt that it made is the one that we ended, and there is no other.
    (step,) = theirs.find("workflow_step", stepName="second")
    (attempt,) = theirs.find("workflow_step_history", workflowStepId=step["_id"])
    assert (attempt["status"], attempt["result"]) == ("succeeded", {"sum": 42, "attempt": 1})
    assert attempt["runningAt"] <= attempt["succeededAt"]
    assert list(find_violations(run_ids=[run_id])) == []
    assert [run.id for run in WorkflowRunService().list_runs()] == [run_id]
    assert WorkflowRunService().delete_run(run_id)
    assert theirs.find("workflow_step_history") == []


def theirs_claimed(theirs: OtherProgram, run_id: str, name: str, data: Any = None) -> str | None:
    theirs.insert_step(run_id, name, "documents.add", data)
    return theirs.claim(run_id, name)


@pytest.mark.parametrize("status", ["pending", "scheduled", "failed"])
def test_a_step_of_theirs_is_claimed_once(theirs: OtherProgram, status: str) -> None:
    service, run_id = WorkflowService(), theirs.create_run("w")
    step_id = theirs.insert_step(run_id, "s", "documents.add")
    if status == "failed":
        assert theirs.claim(run_id, "s")
        theirs.fail(step_id, "no luck")
    elif status == "scheduled":
        theirs.set_step(step_id, "scheduled")
    with pytest.raises(WorkflowStepFunctionMismatchError):
        service.claim_step(run_id, "s", "another")

    claimed = service.claim_step(run_id, "s", "documents.add")
    assert claimed is not None
    assert (claimed.status, claimed.attempt_count) == ("running", 2 if status == "failed" else 1)
    assert service.claim_step(run_id, "s") is None
    assert theirs.claim(run_id, "s") is None
    before = ["failed"] if status == "failed" else []
    assert theirs.attempts(step_id) == [*before, "running"]
    # Nobody but who holds it ends it.
    assert not service.set_step_result(step_id, 1, attempt=claimed.attempt_count, claim_token="another")
    assert service.set_step_result(step_id, 2, attempt=claimed.attempt_count, claim_token=claimed.claim_token)
    assert theirs.attempts(step_id) == [*before, "succeeded"]
    # The run is theirs to go on with.
    assert {found.rule for found in find_violations(run_ids=[run_id])} == {"stuck-run"}


@pytest.mark.parametrize("at", [2, 3])
def test_a_process_that_dies_as_it_ends_an_attempt_of_theirs(theirs: OtherProgram, at: int) -> None:
    """Cut off after the step and before the attempt, or before the note is taken off."""
    service, run_id = WorkflowService(), theirs.create_run("w")
    step_id = theirs.insert_step(run_id, "s", "f")
    claimed = service.claim_step(run_id, "s")
    assert claimed is not None
    with failing(at, "down"):
        assert service.set_step_result(step_id, 1, attempt=1, claim_token=claimed.claim_token)
    with clock.travel(MINUTE):
        service.relay()
    assert theirs.attempts(step_id) == ["succeeded"]


def test_attempts_are_counted_across_both(theirs: OtherProgram) -> None:
    """Only we write their number into the step, and only what both write counts."""
    service = WorkflowService()
    run_id = service.create_run("w", {})
    step = service.insert_step_state(run_id, "s", "f", {}, retries=3, retry_delay=0)
    for number in (1, 3):
        ours = service.claim_step(run_id, "s")
        assert ours is not None
        assert ours.attempt_count == number
        assert service.set_step_error(step.step_id, {"message": "ours"})
        assert theirs.claim(run_id, "s") == step.step_id
        theirs.fail(step.step_id, "theirs")
    assert theirs.attempts(step.step_id) == ["failed"] * 4
    (detail,) = WorkflowRunService().get_run_steps(run_id)
    assert (detail.step.status, detail.step.attempt_count) == ("failed", 4)
    assert [entry.attempt_count for entry in attempts_of(run_id, "s")] == [1, 2, 3, 4]


def test_a_step_of_theirs_has_no_more_attempts_than_it_says(theirs: OtherProgram, outbox: RecordingDispatcher) -> None:
    run_id = theirs.create_run("documents.sums", {"number": 1})
    theirs.insert_step(run_id, "first", "documents.add", {"number": "no number"}, retries=1)
    WorkflowService().orchestrate_workflow(run_id)
    with clock.travel(MINUTE):
        outbox.deliver()
    assert theirs.find("workflow_runs", _id=run_id)[0]["status"] == "failed"
    assert theirs.attempts(theirs.find("workflow_step")[0]["_id"]) == ["failed", "failed"]


def test_a_claim_of_ours_that_they_end_is_over(theirs: OtherProgram) -> None:
    """Their writes have no guard."""
    service = WorkflowService()
    run_id = service.create_run("w", {})
    step = service.insert_step_state(run_id, "s", "f", {})
    claimed = service.claim_step(run_id, "s")
    assert claimed is not None
    theirs.succeed(step.step_id, "first")
    assert not service.set_step_result(step.step_id, "second", attempt=1, claim_token=claimed.claim_token)
    assert step_of(run_id, "s").result == "first"
    with clock.travel(timedelta(hours=1)):
        service.relay()
    assert step_of(run_id, "s").status == "succeeded"


def test_a_version_of_theirs_is_found_and_changed(theirs: OtherProgram) -> None:
    service = WorkflowService()
    version = {"workflowName": "w", "graphHash": "h", "source": "complex", "status": "active", "createdAt": AT}
    theirs.put("workflow_versions", {**version, "graph": {"made": AT}})
    found = service.get_workflow_version("w", "h")
    assert found is not None
    assert found.graph == {"made": "2026-03-02T09:00:00.000Z"}
    assert service.upsert_workflow_version("w", "h", {}, "dsl") is False
    assert service.update_workflow_version_status("w", "h", "declined") is True
    (document,) = theirs.find("workflow_versions")
    assert (document["status"], document["source"]) == ("declined", "complex")


def test_a_memory_of_theirs_is_the_only_one_of_its_name(theirs: OtherProgram) -> None:
    """They give it an id of its own; what is unique is its name and scope."""
    agents = AgentStorageService()
    theirs.save_memory("ada", "resource", {"n": 1, "seen": AT})
    assert agents.get_working_memory("ada", "resource") == {"n": 1, "seen": "2026-03-02T09:00:00.000Z"}
    agents.save_working_memory("ada", "resource", {"n": 2})
    agents.save_working_memory("ada", "thread", {"n": 3})
    theirs.save_memory("ada", "thread", {"n": 4})
    assert agents.get_working_memory("ada", "thread") == {"n": 4}
    assert AgentWorkingMemory.objects.count() == 2
    assert {(each["scope"], each["data"]["n"]) for each in theirs.find("agent_working_memory")} == {
        ("resource", 2),
        ("thread", 4),
    }


def test_content_that_is_no_json_is_text(theirs: OtherProgram) -> None:
    theirs.put(
        "agent_threads",
        {"_id": "t", "resourceId": "ada", "title": None, "metadata": {"at": AT}, "createdAt": AT, "updatedAt": AT},
    )
    message = {"threadId": "t", "role": "user"}
    contents = ['"said"', "said", '[{"type":"text","text":"x"}]', None]
    theirs.put(
        "agent_message",
        *(
            {**message, "_id": f"m{n}", "content": content, "createdAt": AT + timedelta(seconds=n)}
            for n, content in enumerate(contents)
        ),
    )
    agents = AgentStorageService()
    assert [message.content for message in agents.get_messages("t")] == [
        "said",
        "said",
        [{"type": "text", "text": "x"}],
        None,
    ]
    assert agents.get_thread("t").metadata == {"at": "2026-03-02T09:00:00.000Z"}


def test_the_console_shows_what_they_wrote(theirs: OtherProgram, client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    run_id = theirs.create_run("theirs.flow", {"since": AT, "by": ObjectId()}, wire=None)
    step_id = str(theirs_claimed(theirs, run_id, "first", {"at": AT}))
    theirs.fail(step_id, "no luck at all")
    assert theirs.claim(run_id, "first")
    theirs.succeed(step_id, {"at": AT})
    theirs.insert_step(run_id, "nothing of it is known")
    theirs.put("workflow_versions", {"workflowName": "theirs.flow", "graphHash": "h", "graph": {"at": AT}})
    theirs.end_run(run_id, "failed", error={"message": "it ended badly"})
    bare = {"_id": "bare", "workflow": "theirs.flow", "status": "running", "input": None, "createdAt": AT}
    theirs.put("workflow_runs", {**bare, "updatedAt": AT})

    listed = client.get("/admin/pikku_workflows/workflowrun/").content.decode()
    assert run_id in listed
    assert "/bare/" in listed
    assert client.get("/admin/pikku_workflows/workflowversion/").status_code == 200
    page = client.get(f"/admin/pikku_workflows/workflowrun/{run_id}/change/")
    assert page.status_code == 200
    text = page.content.decode()
    for shown in ("first", "it ended badly", "nothing of it is known", "2026-03-02T09:00:00.000Z"):
        assert shown in text, shown
    assert client.get("/admin/pikku_workflows/workflowrun/bare/change/").status_code == 200


def test_roles_have_no_documents_of_theirs_and_work_beside_them() -> None:
    scopes = ScopeService()
    scopes.create_role("support", scopes=[])
    assert connection.database["pikku_roles"].find_one({"_id": "support"})["system"] is False
