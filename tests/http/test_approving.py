"""Answering approvals over HTTP: the approval says who may, not whose the run is."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from pikku_storage.workflows.service import WorkflowService
from tests.http.callers import Caller
from tests.http.test_access import CALLERS, MISSING, OWNERS, REFUSED

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER = {"reason": "release", "decision": {"amount": 5}}


def asked(service: WorkflowService, owner: User, **options: Any) -> str:
    """A run of that owner that waits for an answer."""
    handle = service.start_workflow("http.released", options, owner=owner)
    service.orchestrate_workflow(handle.id)
    assert handle.status == "suspended"
    return handle.id


def answer(caller: Caller, run_id: str, body: Any = ANSWER) -> Any:
    return caller.post("http.released", "approve", run_id, body=body)


def error_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.content
    error: dict[str, Any] = response.json()["error"]
    return error


@pytest.fixture
def owner(db: Any) -> User:
    """Whose runs they are."""
    return User.objects.create_user("ada")


@pytest.mark.contract("RA-07")
@pytest.mark.parametrize("caller", CALLERS)
def test_whoever_is_signed_in_may_answer_unless_the_approval_says_otherwise(
    caller: str, owner: User, service: WorkflowService
) -> None:
    run_id = asked(service, owner)
    response = answer(CALLERS[caller](owner), run_id)
    assert response.status_code == REFUSED.get(caller, 200)
    service.orchestrate_workflow(run_id)
    run = service.get_run(run_id)
    assert run is not None
    if caller in REFUSED:
        assert run.status == "suspended"
    else:
        assert response.json() == {"ok": True}
        assert (run.status, run.output) == ("completed", {"amount": 5})


@pytest.mark.contract("RA-08")
@pytest.mark.parametrize("caller", [name for name in CALLERS if name not in REFUSED])
def test_the_approval_may_ask_for_the_owner(caller: str, owner: User, service: WorkflowService) -> None:
    response = answer(CALLERS[caller](owner), asked(service, owner, approvers="owner"))
    if caller in OWNERS:
        assert response.json() == {"ok": True}
    else:
        error = error_of(response, 403)
        assert (error["name"], error["reason"]) == ("WorkflowApprovalForbiddenError", "release")
        assert error["detail"] == "Only the user who started this run may answer this approval"


def test_the_approval_may_ask_for_somebody_else(owner: User, service: WorkflowService, bob: Caller) -> None:
    run_id = asked(service, owner, approvers="not-initiator")
    assert error_of(answer(Caller(owner), run_id), 403)["name"] == "WorkflowApprovalForbiddenError"
    assert answer(bob, run_id).json() == {"ok": True}


def test_a_scope_is_what_a_superuser_has(owner: User, service: WorkflowService) -> None:
    run_id = asked(service, owner, scope="shop:release")
    assert error_of(answer(CALLERS["staff"](owner), run_id), 403)["detail"].endswith("'shop:release' scope")
    assert answer(CALLERS["superuser"](owner), run_id).json() == {"ok": True}


def test_a_second_answer_is_told_what_it_may_know(owner: User, service: WorkflowService, bob: Caller) -> None:
    run_id = asked(service, owner)
    answer(bob, run_id)
    service.orchestrate_workflow(run_id)
    told = error_of(answer(Caller(owner), run_id), 409)
    assert (told["name"], told["status"]) == ("WorkflowApprovalResolvedError", "decided")
    stranger = error_of(answer(bob, run_id), 409)
    message = "The approval 'release' takes no further answer"
    assert stranger == {"name": "ApprovalClosedError", "message": message, "reason": "release"}


def test_a_stranger_does_not_learn_how_a_run_ended(owner: User, service: WorkflowService, bob: Caller) -> None:
    run_id = asked(service, owner)
    service.cancel_workflow(run_id, "a secret")
    response = answer(bob, run_id)
    assert response.status_code == 409
    assert b"cancelled" not in response.content
    assert b"secret" not in response.content


def test_an_answer_that_does_not_fit_says_where(owner: User, service: WorkflowService) -> None:
    run_id = asked(service, owner)
    error = error_of(answer(Caller(owner), run_id, {"reason": "release", "decision": {"amount": "much"}}), 422)
    assert error["name"] == "WorkflowApprovalInvalidError"
    assert [problem["path"] for problem in error["problems"]] == [["amount"]]
    assert answer(Caller(owner), run_id).json() == {"ok": True}


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        (None, 400, "MalformedRequestError"),
        ({"reason": "release"}, 400, "MalformedRequestError"),
        ({**ANSWER, "by": "root"}, 400, "MalformedRequestError"),
        ({**ANSWER, "reason": 5}, 422, "WorkflowStepNameNotString"),
        ({**ANSWER, "reason": "a\x00b"}, 422, "WorkflowStepNameNotString"),
        ({**ANSWER, "decision": "a\x00b"}, 422, "PayloadError"),
    ],
)
def test_a_body_that_is_no_answer(owner: User, service: WorkflowService, body: Any, status: int, name: str) -> None:
    run_id = asked(service, owner)
    assert error_of(answer(Caller(owner), run_id, body), status)["name"] == name


def test_a_run_that_is_not_there_takes_no_answer(owner: User) -> None:
    error = error_of(answer(Caller(owner), MISSING), 404)
    assert error == {"name": "NoSuchRunError", "message": f"Run not found: {MISSING}"}
