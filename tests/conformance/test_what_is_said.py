"""What operators and callers are told: in the log, in stored errors, and by what is refused."""

import logging
import sys

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.management import CommandError, call_command
from kombu.exceptions import OperationalError

from pikku_storage.exceptions import WorkflowDispatchException, WorkflowInputError
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.dispatch import CeleryDispatcher, Message
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun
from tests.conformance.recording import RecordingDispatcher

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_step_that_fails_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    @function(retries=1, retry_delay=0)
    def pack() -> None:
        raise ConnectionError("the line is dead")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    run = order.run()
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, logging.ERROR, logging.ERROR]
    assert "Attempt 1 of 2 of step pack" in caplog.text
    assert "ConnectionError: the line is dead" in caplog.text
    assert f"Run {run.id} of workflow order failed: the line is dead" in caplog.text


def test_a_run_that_is_suspended_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", "nobody_knows_it")

    run = order.run()
    assert f"Run {run.id} of workflow order is suspended: RPC 'nobody_knows_it' not found" in caplog.text


@pytest.mark.parametrize(
    ("data", "path"), [({"sku": float("nan")}, "$data.sku"), ({"sku": 1, "more": 2}, "unexpected 'more'")]
)
def test_what_a_body_does_wrong_names_the_step(data: dict[str, object], path: str) -> None:
    @function
    def pack(sku: object) -> None: ...

    @workflow
    def order(flow: Flow) -> None:
        flow.map("pack", pack, [{"sku": 0}, data])

    error = order.run().error
    assert error is not None
    assert error["step"] == "pack[1]"
    assert "'pack[1]'" in error["message"]
    assert path in error["message"]


def test_sys_exit_is_told_as_what_it_was() -> None:
    @function(retries=0)
    def pack() -> None:
        sys.exit("enough")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    (step,) = order.run().steps()
    assert step.error is not None
    assert step.error["message"] == "The function called sys.exit('enough')"
    assert "code" not in step.error


def test_items_that_are_no_objects_are_a_plain_callables_only_argument() -> None:
    @workflow
    def order(flow: Flow) -> list[int]:
        return flow.map("double", lambda number: number * 2, [1, 2, 3])

    assert order.run().result() == [2, 4, 6]


@pytest.mark.parametrize("owner", [object(), {"id": 5}, AnonymousUser(), True])
def test_what_is_no_owner_is_refused(owner: object) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with pytest.raises(WorkflowInputError, match="owner"):
        order.start(owner=owner)
    assert not WorkflowRun.objects.exists()


def test_a_failed_run_is_retried_once_however_often_it_is_asked_for(outbox: RecordingDispatcher) -> None:
    @function(retries=0)
    def pack() -> None:
        raise ConnectionError

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    failed = order.run()
    first, second = failed.retry(), failed.retry()
    assert first == second
    assert (first.created, second.created) == (True, False)
    assert WorkflowRun.objects.count() == 2


def test_a_broker_that_is_down_is_not_asked_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(*args: object, **options: object) -> None:
        asked.append(1)
        raise OperationalError("connection refused")

    monkeypatch.setattr("pikku_storage.workflows.tasks.orchestrate.apply_async", refuse)
    dispatcher = CeleryDispatcher()
    for _ in range(5):
        with pytest.raises(WorkflowDispatchException):
            dispatcher.send([Message(run_id="r")])
    assert len(asked) == 1


def test_a_definition_that_captures_values_warns_when_it_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    def make(factor: int) -> None:
        @function(name="times")
        def times(number: int) -> int:
            return number * factor

    make(2)
    assert not caplog.records
    make(3)
    assert "times is registered again by the same lines" in caplog.text


def test_commands_refuse_what_is_not_there() -> None:
    with pytest.raises(CommandError, match="No such run: nobody"):
        call_command("check_storage", "nobody")
    for command in ("relay", "check_storage"):
        with pytest.raises(CommandError, match="no database 'nowhere'"):
            call_command(command, database="nowhere")
