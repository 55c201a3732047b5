"""Two programs on one MongoDB: this one, and a process that knows nothing but the contract's documents. They take turns
on the same things, and race for the same steps."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from pikku_storage.access.sessions import SessionStore
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.crypto import envelope
from pikku_storage.deployments.service import DeploymentService
from pikku_storage.secrets.service import SecretService
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.support import attempts_of, connection, step_of
from tests.secret_keys import PASSPHRASE, SALT, derive_kek

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "mongodb", reason="about MongoDB"),
]

STEPS = 8


class OtherProgram:
    """The process, told what to do."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, order: str, *what: Any) -> None:
        """Let it begin with something; `answer` waits for the end of it."""
        from bson import json_util

        assert self._process.stdin is not None
        self._process.stdin.write(json_util.dumps({"do": order, "with": what}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """What came of what it was told."""
        from bson import json_util

        assert self._process.stdout is not None
        return json_util.loads(self._process.stdout.readline())

    def __getattr__(self, order: str) -> Callable[..., Any]:
        def ask(*what: Any) -> Any:
            self.tell(order, *what)
            return self.answer()

        return ask


@pytest.fixture
def other(process_env: dict[str, str]) -> Iterator[OtherProgram]:
    settings = connection.settings_dict
    command = [sys.executable, "-m", "tests.conformance.other_program", settings["HOST"], settings["NAME"]]
    with subprocess.Popen(
        command, env=process_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            program = OtherProgram(process)
            program.init()
            yield program
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    functions, workflows = dict(registry.functions), dict(registry.workflows)
    yield
    registry.functions, registry.workflows = functions, workflows


def test_they_take_turns_on_a_run(other: OtherProgram) -> None:
    """It begins the run and does a step; we do the next, which fails; it tries that again; we end the run."""
    tried: list[str] = []

    @function(name="shared.pack", retries=0)
    def pack(order: str) -> None:
        tried.append(order)
        raise ValueError("no box is left")

    @function(name="shared.send")
    def send(box: str) -> str:
        return f"sent {box}"

    @workflow(name="shared.order")
    def shared(flow: Flow, order: str) -> Any:
        flow.do("check", pack, {"order": order})
        packed: Any = flow.do("pack", pack, {"order": order})
        return flow.do("send", send, {"box": packed["box"]})

    service = WorkflowService()
    run_id = other.create_run("shared.order", {"order": "A17"}, {"type": "http", "pikkuUserId": "ada"})
    check = other.insert_step(run_id, "check", "shared.pack", {"order": "A17"}, 1)
    assert other.claim(run_id, "check") == check
    assert service.claim_step(run_id, "check") is None
    other.succeed(check, {"in stock": True})
    other.set_state(run_id, "checked", True)

    packing = other.insert_step(run_id, "pack", "shared.pack", {"order": "A17"}, 1)
    service.execute_workflow_step(run_id, "pack", "shared.pack")
    assert tried == ["A17"]
    assert other.attempts(packing) == ["failed"]
    assert other.claim(run_id, "pack") == packing
    other.succeed(packing, {"box": "B2"})
    assert other.attempts(packing) == ["failed", "succeeded"]
    assert [entry.status for entry in attempts_of(run_id, "pack")] == ["failed", "succeeded"]

    assert service.update_run_state(run_id, "packed", True)
    other.set_state(run_id, "told", "ada")
    service.orchestrate_workflow(run_id)
    (run,) = other.find("workflow_runs")
    assert (run["status"], run["output"]) == ("completed", "sent B2")
    assert run["state"] == {"checked": True, "packed": True, "told": "ada"}
    assert tried == ["A17"]
    assert {step["stepName"]: step["status"] for step in other.find("workflow_step")} == dict.fromkeys(
        ("check", "pack", "send"), "succeeded"
    )


@pytest.mark.parametrize("status", ["pending", "scheduled", "failed"])
@pytest.mark.parametrize("by", ["us", "it"])
def test_each_step_that_both_want_has_one_winner(other: OtherProgram, by: str, status: str) -> None:
    """Whoever made the steps."""
    service = WorkflowService()
    run_id = service.create_run("contested", {}) if by == "us" else other.create_run("contested")
    names = [f"step {number}" for number in range(STEPS)]
    for name in names:
        if by == "us":
            step_id = service.insert_step_state(run_id, name, "f", {}, retries=3).step_id
        else:
            step_id = other.insert_step(run_id, name, "f", {}, 3)
        if status == "failed":
            other.claim(run_id, name)
            other.fail(step_id, "once")
        elif status == "scheduled":
            other.set_step(step_id, "scheduled")

    ours, theirs = [], []
    for name in names:
        other.tell("claim", run_id, name)
        if service.claim_step(run_id, name) is not None:
            ours.append(name)
        if other.answer() is not None:
            theirs.append(name)
    assert Counter([*ours, *theirs]) == Counter(names)
    expected = ["failed", "running"] if status == "failed" else ["running"]
    assert [other.attempts(step.step_id) for step in service.list_step_states(run_id)] == [expected] * STEPS
    assert all(step_of(run_id, name).claim_token is not None for name in ours)


def test_state_keys_of_both_survive(other: OtherProgram) -> None:
    service = WorkflowService()
    run_id = other.create_run("w")
    other.tell("set_keys", run_id, [f"theirs{number}" for number in range(STEPS)])
    for number in range(STEPS):
        assert service.update_run_state(run_id, f"ours{number}", number)
    other.answer()
    assert len(service.get_run_state(run_id)) == 2 * STEPS


def test_they_take_turns_on_all_else(other: OtherProgram, use_keys: Callable[..., None]) -> None:
    use_keys(SECRET_FORMAT="compatible")
    at = datetime.now(UTC)

    agents = AgentStorageService()
    stamps = {"createdAt": at, "updatedAt": at}
    other.put("agent_threads", {"_id": "t", "resourceId": "ada", "title": None, "metadata": None, **stamps})
    other.put("agent_message", {"_id": "m", "threadId": "t", "role": "user", "content": '"hello"', "createdAt": at})
    agents.save_messages("t", [{"id": "n", "role": "assistant", "content": [{"type": "text", "text": "hi"}]}])
    assert [message.content for message in agents.get_messages("t")] == ["hello", [{"type": "text", "text": "hi"}]]
    assert [each["content"] for each in other.find("agent_message")] == ['"hello"', '[{"type":"text","text":"hi"}]']
    other.save_memory("ada", "resource", {"n": 1})
    seen = agents.read_working_memory("ada", "resource")
    assert seen is not None
    assert agents.swap_working_memory("ada", "resource", {**seen.data, "m": 2}, seen=seen) is True
    other.save_memory("ada", "resource", {"n": 3})
    assert agents.get_working_memory("ada", "resource") == {"n": 3}
    assert len(other.find("agent_working_memory")) == 1

    secrets, kek = SecretService(), derive_kek(PASSPHRASE, SALT)
    secrets.set_secret("OURS", {"user": "ada"})
    (document,) = other.find("secrets")
    assert envelope.decrypt(kek, document["ciphertext"], document["wrappedDek"]) == {"user": "ada"}
    sealed = envelope.encrypt(kek, "theirs")
    sealing = {"ciphertext": sealed.ciphertext, "wrappedDek": sealed.wrapped_dek, "keyVersion": 1}
    other.put("secrets", {"_id": "THEIRS", **sealing, **stamps})
    other.change("secrets", {"_id": "OURS"}, sealing)
    assert {key: value.reveal() for key, value in secrets.get_secrets(["OURS", "THEIRS"]).items()} == {
        "OURS": "theirs",
        "THEIRS": "theirs",
    }

    channels, topics = ChannelStore(), EventHubStore()
    opened: dict[str, Any] = {
        "channelName": "chat",
        "openingData": {},
        "pikkuUserId": None,
        "createdAt": at,
        "lastWire": at,
    }
    other.put("channels", {"_id": "c", **opened})
    other.put("channel_subscriptions", {"channelId": "c", "topic": "theirs"})
    assert topics.subscribe("theirs", "c")
    assert topics.subscribe("ours", "c")
    channels.set_pikku_user_id("c", "ada")
    channels.set_state("c", {"n": 1})
    assert other.topics_of("c") == ["ours", "theirs"]
    other.change("channels", {"_id": "c"}, {"state": {"n": 2}})
    assert channels.get_state("c") == {"n": 2}
    assert topics.get_channel_ids_for_topic("theirs") == ["c"]
    channels.remove_channels(["c"])
    assert other.find("channel_subscriptions") == other.find("channels") == []

    sessions = SessionStore()
    other.save_session("ada", {"language": "de"})
    assert sessions.get("ada") == {"language": "de"}
    sessions.set("ada", {"language": "en"})
    assert [each["session"] for each in other.find("pikkuUserSessions")] == [{"language": "en"}]

    deployments = DeploymentService()
    other.deploy("theirs", "http://theirs", ["pack", "both"])
    deployments.start("ours", "http://ours", ["send", "both"])
    try:
        assert {each.deployment_id for each in deployments.find_deployments("both")} == {"ours", "theirs"}
        assert [each.endpoint for each in deployments.find_deployments("pack")] == ["http://theirs"]
        assert other.endpoint_of("send") == "http://ours"
    finally:
        deployments.stop()
