"""Who may answer an approval, what an answer must look like, and what is kept of those that were refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from pytest_django import Settings

from pikku_storage.access.actors import Actor
from pikku_storage.auditing import AuditEvent
from pikku_storage.exceptions import (
    PayloadError,
    WorkflowApprovalForbiddenError,
    WorkflowApprovalInvalidError,
    WorkflowApprovalResolvedError,
    WorkflowInputError,
)
from pikku_storage.ids import new_id
from pikku_storage.workflows import workflow
from pikku_storage.workflows.engine import answers as answering
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.gates import state_key
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import step_of

pytestmark = pytest.mark.django_db(transaction=True)

GATE = "__workflow_approval:release"
KEY = state_key(GATE)


class ReleaseForm(forms.Form):
    """What whoever releases an order says."""

    amount = forms.IntegerField(max_value=100)
    note = forms.CharField(required=False)


@dataclass
class Release:
    """The same as a dataclass."""

    amount: int
    note: str = ""


def asked(outbox: RecordingDispatcher, *, owner: Any = "ada", early: Any = None, **options: Any) -> WorkflowRunHandle:
    """A run that stands at an approval with these options, after the `early` answer `(decision, by)`."""

    @workflow(name=new_id())
    def order(flow: Flow) -> Any:
        return flow.approval("release", **options).data

    run = order.start(owner=owner)
    if early is not None:
        run.approve("release", early[0], by=early[1])
    outbox.deliver()
    assert run.status == "suspended"
    return run


def answered(run: WorkflowRunHandle, outbox: RecordingDispatcher, decision: Any, by: Any = None) -> None:
    """The answer is taken and the run ends with it."""
    run.approve("release", decision, by=by)
    outbox.deliver()
    assert run.output == decision
    assert list(find_violations()) == []


# -- who ---------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("AP-08")
def test_four_eyes(outbox: RecordingDispatcher) -> None:
    run = asked(outbox, approvers="not-initiator")
    with pytest.raises(WorkflowApprovalForbiddenError) as caught:
        run.approve("release", True, by="ada")
    assert (caught.value.reason, caught.value.http_status) == ("release", 403)
    assert caught.value.detail == "The user who started this run may not answer this approval"
    with pytest.raises(WorkflowApprovalForbiddenError, match="signed-in"):
        run.approve("release", True)
    answered(run, outbox, True, by="bob")


@pytest.mark.contract("AP-09", "RA-08")
def test_the_owner_only(outbox: RecordingDispatcher) -> None:
    run = asked(outbox, approvers="owner")
    for stranger in ("bob", None):
        with pytest.raises(WorkflowApprovalForbiddenError, match="Only the user who started"):
            run.approve("release", True, by=stranger)
    answered(run, outbox, True, by="ada")


@pytest.mark.contract("AP-03")
def test_where_nobody_owns_the_run_anybody_may_answer_for_the_owner(outbox: RecordingDispatcher) -> None:
    answered(asked(outbox, owner=None, approvers="owner"), outbox, True, by="bob")


@pytest.mark.contract("RA-07", "AP-07")
def test_somebody_elses_run_may_be_answered_unless_the_approval_says_otherwise(outbox: RecordingDispatcher) -> None:
    answered(asked(outbox), outbox, True, by="bob")


@pytest.mark.contract("AP-10")
def test_a_scope_is_needed(outbox: RecordingDispatcher) -> None:
    run = asked(outbox, approver_scope="shop:release")
    for actor in ("bob", Actor(user_id="bob", scopes=("shop:other",)), None):
        with pytest.raises(WorkflowApprovalForbiddenError, match="requires the 'shop:release' scope"):
            run.approve("release", True, by=actor)
    answered(run, outbox, True, by=Actor(user_id="bob", scopes=("shop",)))


@pytest.mark.contract("AP-11")
def test_whoever_answers_may_be_named_in_several_ways(outbox: RecordingDispatcher) -> None:
    user_model = get_user_model()
    root = user_model(pk=1, username="root", is_superuser=True)
    retired = user_model(pk=2, username="retired", is_superuser=True, is_active=False)
    plain = user_model(pk=3, username="plain")
    session = SimpleNamespace(user_id=7, scopes=["shop:release"])
    named = [
        (root, "1", ["*"]),
        (retired, "2", []),
        (plain, "3", []),
        (session, "7", ["shop:release"]),
        (4, "4", []),
        (Actor(user_id="x", scopes=("a", "b")), "x", ["a", "b"]),
    ]
    for by, user_id, scopes in named:
        run = asked(outbox)
        answered(run, outbox, True, by=by)
        assert step_of(run.id, GATE).result["decidedBy"] == {"userId": user_id, "scopes": scopes}
    run = asked(outbox)
    answered(run, outbox, True, by=AnonymousUser())
    assert "decidedBy" not in step_of(run.id, GATE).result
    with pytest.raises(WorkflowInputError, match="The actor is a user, or an id"):
        asked(outbox).approve("release", True, by=object())


@pytest.mark.parametrize(
    "options",
    [{"approvers": "all"}, {"approver_scope": ""}, {"expiry": "soon"}, {"expiry": -1}, {"schema": 3}, {"schema": int}],
    ids=repr,
)
def test_options_that_cannot_be_used_fail_the_run_before_anybody_is_asked(
    outbox: RecordingDispatcher, options: Any
) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.approval("release", **options)

    run = order.start()
    outbox.deliver()
    assert run.status == "failed"
    assert run.steps() == []


# -- what --------------------------------------------------------------------------------------------------------------

SCHEMAS: dict[str, Any] = {
    "form": ReleaseForm,
    "dataclass": Release,
    "json": {
        "type": "object",
        "properties": {"amount": {"type": "integer", "maximum": 100}, "note": {"type": "string"}},
        "required": ["amount", "note"],
        "additionalProperties": False,
    },
}


@pytest.mark.contract("EN-17")
@pytest.mark.parametrize("kind", SCHEMAS)
def test_an_answer_that_does_not_fit_is_told_so_at_once(outbox: RecordingDispatcher, kind: str) -> None:
    run = asked(outbox, schema=SCHEMAS[kind])
    assert step_of(run.id, GATE).data["schema"]["kind"] == kind
    for wrong in ({"amount": "many", "note": ""}, {"note": ""}, 7, None):
        with pytest.raises(WorkflowApprovalInvalidError) as caught:
            run.approve("release", wrong)
        assert caught.value.http_status == 422
        assert all(set(problem) == {"message", "path"} for problem in caught.value.problems)
    answered(run, outbox, {"amount": 3, "note": "please"})


@pytest.mark.contract("EN-17")
@pytest.mark.parametrize("kind", SCHEMAS)
def test_an_answer_that_does_not_fit_never_settles_the_approval(
    outbox: RecordingDispatcher, runs: WorkflowRunService, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Where the schema is not at hand, the run finds out."""
    run = asked(outbox, schema=SCHEMAS[kind])
    with monkeypatch.context() as patch:
        patch.setattr(answering, "loaded_schema", lambda name: None)
        run.approve("release", {"amount": "many", "note": ""}, by="bob")
    outbox.deliver()

    assert run.status == "suspended"
    assert step_of(run.id, GATE).status == "running"
    shown = run.state[KEY]
    assert set(shown) == {"policy", "error"}, "the decision is cleared"
    assert shown["error"][0]["path"] == ["amount"]
    (refused,) = runs.get_run_answers(run.id)
    assert (refused.verdict, refused.decision) == ("refused", {"amount": "many", "note": ""})
    assert refused.refusal == shown["error"]
    answered(run, outbox, {"amount": 3, "note": ""})
    assert [entry.verdict for entry in runs.get_run_answers(run.id)] == ["refused", "accepted"]
    assert "error" not in run.state[KEY]


def test_the_workflow_is_given_what_was_validated(outbox: RecordingDispatcher) -> None:
    run = asked(outbox, schema=ReleaseForm)
    run.approve("release", {"amount": " 12 "})
    outbox.deliver()
    assert run.output == {"amount": 12, "note": ""}


def test_a_decision_must_be_json(outbox: RecordingDispatcher) -> None:
    run = asked(outbox)
    with pytest.raises(PayloadError, match=r"\$decision"):
        run.approve("release", object())
    answered(run, outbox, True)


def test_a_fault_in_the_validation_refuses_the_answer_and_fails_no_run(
    outbox: RecordingDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(forms.Form):
        def clean(self) -> Any:
            raise ZeroDivisionError("oh no")

    run = asked(outbox, schema=Broken)
    run.approve("release", {})
    outbox.deliver()
    assert run.status == "suspended"
    assert run.state[KEY]["error"] == [
        {"message": "The schema cannot be applied: ZeroDivisionError: oh no", "path": []}
    ]
    assert "cannot be applied" in caplog.text


# -- early answers -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("AP-13")
def test_an_early_answer_is_judged_when_the_approval_is_reached(
    outbox: RecordingDispatcher, runs: WorkflowRunService
) -> None:
    run = asked(outbox, approvers="not-initiator", early=(True, "ada"))
    text = "The user who started this run may not answer this approval"
    assert run.state[KEY] == {
        "policy": {"approvers": "not-initiator", "approverScope": None},
        "error": [{"message": text}],
    }
    (refused,) = runs.get_run_answers(run.id)
    assert (refused.verdict, refused.refusal) == ("refused", [{"message": text}])
    answered(run, outbox, True, by="bob")


# -- the audit trail ---------------------------------------------------------------------------------------------------


def told(audited: list[AuditEvent]) -> list[tuple[str | None, str | None, Any]]:
    """Outcome, actor and refusal of each event."""
    answers = [event for event in audited if event.type == "workflow.approval.decided"]
    return [(event.outcome, event.actor.user_id, event.metadata["refusal"]) for event in answers]


@pytest.mark.contract("AP-14")
def test_an_answer_is_audited_once(outbox: RecordingDispatcher, audited: list[AuditEvent]) -> None:
    run = asked(outbox)
    before = datetime.now(UTC)
    answered(run, outbox, True, by=Actor(user_id="bob", scopes=("shop",)))
    (event,) = audited
    assert event.as_json() == {
        "type": "workflow.approval.decided",
        "source": "explicit",
        "outcome": "success",
        "occurredAt": event.occurred_at.isoformat(),
        "wireType": "workflow",
        "userIdentity": {"pikkuUserId": "bob"},
        "metadata": {"runId": run.id, "reason": "release", "scopes": ["shop"], "refusal": None},
    }
    assert timedelta() <= event.occurred_at - before < timedelta(minutes=1)


@pytest.mark.contract("AP-15")
def test_a_refused_answer_is_audited_as_denied(outbox: RecordingDispatcher, audited: list[AuditEvent]) -> None:
    run = asked(outbox, approvers="owner", schema=ReleaseForm)
    with pytest.raises(WorkflowApprovalForbiddenError):
        run.approve("release", {"amount": 1}, by="bob")
    with pytest.raises(WorkflowApprovalInvalidError):
        run.approve("release", {"amount": "many"}, by="ada")
    run.approve("release", {"amount": 1}, by="ada")
    with pytest.raises(WorkflowApprovalResolvedError):
        run.approve("release", {"amount": 1}, by="ada")
    outcomes = told(audited)
    assert [each[:2] for each in outcomes] == [
        ("denied", "bob"),
        ("denied", "ada"),
        ("success", "ada"),
        ("denied", "ada"),
    ]
    assert outcomes[0][2] == "Only the user who started this run may answer this approval"


@pytest.mark.contract("AP-16")
def test_an_answer_that_the_run_refuses_is_audited_as_denied(
    outbox: RecordingDispatcher, audited: list[AuditEvent], service: WorkflowService
) -> None:
    run = asked(outbox, approvers="not-initiator", early=(True, "ada"))
    text = "The user who started this run may not answer this approval"
    assert told(audited) == [("success", "ada", None), ("denied", "ada", text)]
    service.resume_workflow(run.id)
    outbox.deliver()
    assert len(told(audited)) == 2, "and once"


@pytest.mark.contract("AP-17")
def test_a_failing_sink_loses_no_decision(
    outbox: RecordingDispatcher, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": "tests.conformance.test_answers.broken_sink"}
    answered(asked(outbox), outbox, True, by="bob")
    assert "workflow.approval.decided" in caplog.text
    assert "the disk is full" in caplog.text


@pytest.mark.contract("AP-18")
@pytest.mark.parametrize("sink", [None, "no.such.sink"])
def test_without_a_sink_all_is_the_same(outbox: RecordingDispatcher, settings: Settings, sink: str | None) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": sink}
    answered(asked(outbox), outbox, True, by="bob")


def test_the_trail_may_be_a_log(
    outbox: RecordingDispatcher, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": "pikku_storage.auditing.log_event"}
    run = asked(outbox)
    with caplog.at_level("INFO", "pikku_storage.audit"):
        answered(run, outbox, True, by="bob")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "pikku_storage.audit"]
    assert f'"runId": "{run.id}"' in line


def broken_sink(event: AuditEvent) -> None:
    raise OSError("the disk is full")


# -- the inbox ---------------------------------------------------------------------------------------------------------


def test_open_approvals_are_listed_page_by_page(
    outbox: RecordingDispatcher, runs: WorkflowRunService, statements: Any
) -> None:
    waiting = [asked(outbox, owner=owner, schema=ReleaseForm) for owner in ("ada", "bob", "ada", None)]
    other = asked(outbox, owner="ada", approvers="owner", approver_scope="shop", expiry="1h")

    with statements() as seen:
        first = runs.list_open_approvals(limit=2)
    assert len(seen.captured_queries) == 2
    second = runs.list_open_approvals(limit=3, after=(first[-1].opened_at, first[-1].run_id))
    assert [each.run_id for each in (*first, *second)] == [run.id for run in (*waiting, other)]
    assert runs.list_open_approvals(after=(second[-1].opened_at, second[-1].run_id)) == []
    assert [each.run_id for each in runs.list_open_approvals(owner="ada")] == [waiting[0].id, waiting[2].id, other.id]
    last = second[-1]
    assert [each.run_id for each in runs.list_open_approvals(workflow_name=last.workflow)] == [other.id]
    assert (last.reason, last.step_name, last.owner_id) == ("release", GATE, "ada")
    assert (last.approvers, last.approver_scope, last.schema) == ("owner", "shop", None)
    assert last.expires_at == last.opened_at + timedelta(hours=1)
    assert first[0].schema == {"kind": "form", "path": "tests.conformance.test_answers:ReleaseForm"}

    waiting[0].approve("release", {"amount": 1})
    assert waiting[0].id not in {each.run_id for each in runs.list_open_approvals()}, "already before it is judged"


def test_a_suspension_is_no_approval(outbox: RecordingDispatcher, runs: WorkflowRunService) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.suspend("look")

    order.start()
    outbox.deliver()
    assert runs.list_open_approvals() == []
