"""Who may answer an approval, and how approvals are named (contract services.md §1.2 and §1.8)."""

from typing import Any

import pytest

from pikku_storage.access.actors import Actor
from pikku_storage.exceptions import WorkflowStepNameNotString
from pikku_storage.workflows.gates import APPROVAL_RPC, SUSPEND_RPC, gate_name, state_key
from pikku_storage.workflows.policies import ApprovalPolicy
from tests.data.vectors import load

VECTORS = load("approval")


def refusal(policy: dict[str, Any], owner: str | None, decider: dict[str, Any] | None) -> str | None:
    asked = ApprovalPolicy(approvers=policy.get("approvers", "any"), scope=policy.get("approverScope"))
    return asked.refusal(owner, Actor.from_json(decider))


@pytest.mark.contract("AP-01", "AP-02", "AP-03", "AP-04", "AP-05", "AP-06")
@pytest.mark.parametrize("vector", VECTORS["policy"], ids=lambda vector: f"{vector['policy']} {vector['decider']}")
def test_the_policy_refuses_whom_the_contract_says(vector: dict[str, Any]) -> None:
    expected = vector["refusal"]
    if "*" in (vector["decider"] or {}).get("scopes", []):
        # Where we differ: a required scope is satisfied by the scope rules (architecture.md §4).
        expected = None
    assert refusal(vector["policy"], vector["owner"], vector["decider"]) == expected


@pytest.mark.contract("AP-05")
def test_not_the_initiator_means_somebody_even_where_nobody_started_the_run() -> None:
    policy = {"approvers": "not-initiator"}
    assert refusal(policy, None, None) == "Answering this approval requires a signed-in user"
    assert refusal(policy, None, {"userId": "ada"}) is None


@pytest.mark.contract("AP-06")
@pytest.mark.parametrize("scopes", [["shop"], ["shop:*"], ["shop:release"], ["*"]], ids=repr)
def test_a_scope_is_satisfied_by_the_scope_rules(scopes: list[str]) -> None:
    policy = {"approvers": "owner", "approverScope": "shop:release"}
    assert refusal(policy, "ada", {"userId": "ada", "scopes": scopes}) is None
    assert refusal(policy, "ada", {"userId": "bob", "scopes": scopes}) is not None
    assert refusal(policy, "ada", {"userId": "ada", "scopes": ["shop:other"]}) is not None


@pytest.mark.parametrize("options", [{"approvers": "everybody"}, {"scope": ""}, {"scope": 3}], ids=repr)
def test_a_policy_that_cannot_be_used_is_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="approver"):
        ApprovalPolicy(**options)


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: repr(vector["reason"]))
def test_names_and_state_keys_are_the_contracts(vector: dict[str, str]) -> None:
    assert gate_name(APPROVAL_RPC, vector["reason"]) == vector["stepName"]
    assert gate_name(SUSPEND_RPC, vector["reason"]) == vector["suspendStepName"]
    assert state_key(vector["stepName"]) == vector["stateKey"]


@pytest.mark.parametrize("reason", [None, 7, b"go", "go\x00"], ids=repr)
def test_a_reason_is_a_text(reason: Any) -> None:
    with pytest.raises(WorkflowStepNameNotString):
        gate_name(APPROVAL_RPC, reason)
