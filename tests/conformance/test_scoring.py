"""Grading stored runs, at once and by workers."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import transaction
from django.utils.connection import ConnectionDoesNotExist
from kombu.exceptions import OperationalError
from pytest_django import Settings

from pikku_storage.agents.records import Score
from pikku_storage.agents.scoring import JudgeReply, Turn, judge, scorer, scorers
from pikku_storage.agents.scoring.service import ScoringService
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.tasks import score_run
from pikku_storage.conf import settings as pikku_settings
from pikku_storage.exceptions import (
    AgentRunNotFoundError,
    MessageConflictError,
    ScorerNotFoundError,
    ScoringError,
)
from tests.conformance.support import DATABASE, needs_transactions

pytestmark = pytest.mark.django_db(transaction=True)

Sent = list[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """The scorers of each test, and the messages that are sent to workers."""
    monkeypatch.setattr(scorers, "by_name", {})
    messages: Sent = []

    def keep(args: Any, kwargs: Any, *, queue: str) -> None:
        messages.append((*args, kwargs, queue))

    monkeypatch.setattr(score_run, "apply_async", keep)

    @scorer
    def polite(turn: Turn) -> tuple[float, str]:
        return float("please" in turn.output), f"{len(turn.tools)} tools"

    @scorer
    def matches(turn: Turn, key: str) -> float:
        return float(turn.output == key)

    reply = JudgeReply(answer={"score": 2, "reason": "good"}, cost=0.01)
    judge("helpful", model="openai/x", criteria="?", ask=lambda request: reply, queue="judges", snapshot="whole")
    return messages


@pytest.fixture
def storage() -> AgentStorageService:
    return AgentStorageService()


@pytest.fixture
def run_id(storage: AgentStorageService) -> str:
    thread_id = storage.create_thread("ada").id
    made = storage.create_run(agent_name="helper", thread_id=thread_id, resource_id="ada")
    call = {"id": "c1", "name": "find", "args": {}}
    storage.save_messages(
        thread_id,
        [
            {"role": "user", "content": "Tea?"},
            {"role": "assistant", "content": None, "toolCalls": [call]},
            {"role": "assistant", "content": "Here you are, please"},
        ],
    )
    return made


def names(scores: list[Score]) -> list[str]:
    return [score.scorer_name for score in scores]


@pytest.mark.contract("SR-01")
def test_a_grade_of_a_scenario_is_not_written(run_id: str, storage: AgentStorageService) -> None:
    turn = ScoringService().get_turn(run_id)
    assert scorers.get("polite").grade(turn).score == 1.0
    assert scorers.get("matches").grade(turn, "Here you are, please").score == 1.0
    assert storage.get_scores(run_id) == []


@pytest.mark.contract("SR-03", "SR-06")
def test_a_stored_grade_has_score_reason_model_and_snapshot(run_id: str, storage: AgentStorageService) -> None:
    service = ScoringService()
    service.grade_run(run_id, "polite")
    service.grade_run(run_id, scorers.get("helpful"))
    service.grade_run(run_id, "matches", key="Something else")
    polite, helpful, matches = storage.get_scores(run_id)
    assert (polite.score, polite.reason, polite.metadata) == (1.0, "1 tools", None)
    assert (helpful.score, helpful.reason, matches.score) == (1.0, "good", 0.0)
    assert (helpful.metadata["model"], helpful.metadata["cost"]) == ("openai/x", 0.01)
    assert [message["role"] for message in helpful.metadata["snapshot"]["messages"]] == ["user", *["assistant"] * 2]
    with pytest.raises(ScoringError):
        service.grade_run(run_id, "matches")
    with pytest.raises(AgentRunNotFoundError):
        service.grade_run("nowhere", "polite")
    assert len(storage.get_scores(run_id)) == 3


@pytest.mark.usefixtures("ticking")
def test_a_run_is_graded_by_what_was_said_before_the_next_one(storage: AgentStorageService) -> None:
    thread_id = storage.create_thread("ada").id
    runs = []
    for number in range(2):
        runs.append(storage.create_run(agent_name="helper", thread_id=thread_id, resource_id="ada"))
        said = [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"}]
        storage.save_messages(thread_id, said)
    storage.save_messages(thread_id, [{"role": "user", "content": "q2"}])
    runs.append(storage.create_run(agent_name="helper", thread_id=thread_id, resource_id="ada", status="failed"))
    turns = [ScoringService().get_turn(run) for run in runs]
    assert [(turn.input, turn.output, len(turn.messages)) for turn in turns] == [
        ("q0", "a0", 2),
        # Said after the answer, so it is none of this turn.
        ("q1", "a1", 4),
        ("q2", "", 5),
    ]


@pytest.mark.contract("SR-04")
def test_live_each_scorer_gets_one_message_in_its_queue(run_id: str, sent: Sent) -> None:
    service = ScoringService()
    assert service.send(run_id, ["polite", "helpful", "polite"]) == ["polite", "helpful"]
    assert ScoringService(DATABASE).send(run_id, ["polite"]) == ["polite"]
    queue = pikku_settings.QUEUE
    assert sent == [
        (run_id, "polite", {}, queue),
        (run_id, "helpful", {}, "judges"),
        (run_id, "polite", {"using": DATABASE}, queue),
    ]


@pytest.mark.contract("SR-04")
def test_live_nobody_compares_and_the_unknown_are_warned_about(
    run_id: str, sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert ScoringService().send(run_id, ["matches", "nobody", "polite"]) == ["polite"]
    assert len(sent) == 1
    assert "matches compares with a key" in caplog.text
    assert "Scorer not found: nobody" in caplog.text


@pytest.mark.contract("SR-04")
def test_live_the_sample_rate_counts(run_id: str, sent: Sent) -> None:
    service = ScoringService()
    assert service.send(run_id, {"polite": 0, "helpful": 1.0}) == ["helpful"]
    runs = [f"run {number}" for number in range(200)]
    asked = [run for run in runs if service.send(run, {"polite": 0.5})]
    assert 70 < len(asked) < 130
    assert asked == [run for run in runs if service.send(run, {"polite": 0.5})]
    rates: list[Any] = [1.5, -1, "all", True, None, float("nan")]
    for rate in rates:
        with pytest.raises(ScoringError, match="fraction"):
            service.send(run_id, {"polite": rate})


@pytest.mark.contract("SR-04")
def test_live_needs_a_dispatcher_and_says_so(
    run_id: str, sent: Sent, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": None}
    with caplog.at_level(logging.WARNING):
        assert ScoringService().send(run_id, []) == []
        assert caplog.text == ""
        assert ScoringService().send(run_id, ["polite"]) == []
    assert "DISPATCHER" in caplog.text
    assert "grade_run" in caplog.text
    assert sent == []


@pytest.mark.contract("SR-04")
def test_live_one_message_that_fails_does_not_stop_the_others(
    run_id: str, sent: Sent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep = score_run.apply_async

    def fail_once(args: Any, kwargs: Any, *, queue: str) -> None:
        if args[1] == "polite":
            raise OperationalError("the broker is away")
        keep(args, kwargs, queue=queue)

    monkeypatch.setattr(score_run, "apply_async", fail_once)
    with caplog.at_level(logging.ERROR):
        ScoringService().send(run_id, ["polite", "helpful"])
    assert [message[1] for message in sent] == ["helpful"]
    assert "could not be sent" in caplog.text


@needs_transactions
def test_live_messages_wait_for_the_transaction(run_id: str, sent: Sent) -> None:
    with transaction.atomic(using=DATABASE):
        ScoringService().send(run_id, ["polite"])
        assert sent == []
    assert len(sent) == 1


@pytest.mark.contract("SR-07")
def test_a_worker_records_the_grade_once(run_id: str, storage: AgentStorageService) -> None:
    for _ in range(2):
        score_run.run(run_id, "polite")
        score_run.run(run_id, "helpful")
    assert names(storage.get_scores(run_id)) == ["polite", "helpful"]
    polite, helpful = storage.get_scores(run_id)
    assert (polite.score, polite.metadata) == (1.0, {"live": True})
    assert (helpful.score, helpful.metadata["model"]) == (1.0, "openai/x"), "the judge was asked"
    ScoringService().grade_run(run_id, "polite")
    assert len(storage.get_scores(run_id)) == 3, "one that is asked for by hand is another one"


@pytest.mark.contract("SR-07")
def test_a_message_that_cannot_be_done_fails_its_task(run_id: str) -> None:
    with pytest.raises(ScorerNotFoundError):
        score_run.run(run_id, "nobody")
    with pytest.raises(ConnectionDoesNotExist):
        score_run.run(run_id, "polite", "nowhere")


def test_a_run_that_is_gone_is_done_with(run_id: str, storage: AgentStorageService) -> None:
    run = storage.get_run(run_id)
    assert run is not None
    storage.delete_thread(run.thread_id)
    score_run.run(run_id, "polite")
    assert storage.get_scores(run_id) == []


def test_two_workers_with_one_message_add_one_grade(run_id: str, storage: AgentStorageService) -> None:
    """Both have seen that there is none yet."""
    first = storage.save_score(run_id, "polite", 1, score_id="the grade")
    assert storage.save_score(run_id, "polite", 0.5, score_id="the grade") == first
    assert storage.get_scores(run_id) == [first]
    with pytest.raises(MessageConflictError):
        storage.save_score(run_id, "helpful", 1, score_id="the grade")
    with pytest.raises(AgentRunNotFoundError):
        storage.save_score("nowhere", "polite", 1, score_id="another")
