"""Exceptions as text."""

import json
import threading

import pytest

from pikku_storage.exceptions import StepTimeoutError, WorkflowRunFailedError, WorkflowStepFailedError
from pikku_storage.json import to_json
from pikku_storage.workflows.errors import coded_error, describe_error


class CardDeclined(Exception):
    code = "CARD_DECLINED"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


class HoldsALock(Exception):
    """Cannot be pickled, and cannot be made again from its arguments."""

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.lock = threading.Lock()
        self.number = number


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


def test_an_exception_becomes_its_name_message_and_traceback() -> None:
    described = describe_error(_raised(ValueError("no such courier")))

    assert described["name"] == "ValueError"
    assert described["message"] == "no such courier"
    assert described["stack"].startswith("Traceback (most recent call last):")
    assert described["stack"].rstrip().endswith("ValueError: no such courier")
    assert "code" not in described


def test_a_code_is_kept() -> None:
    assert describe_error(CardDeclined("no funds"))["code"] == "CARD_DECLINED"
    assert describe_error(StepTimeoutError("too long"))["code"] == "STEP_TIMEOUT"


@pytest.mark.parametrize("code", [404, None, "", ["A"]], ids=repr)
def test_a_code_that_is_no_text_is_left_out(code: object) -> None:
    error = ValueError("x")
    error.code = code  # type: ignore[attr-defined]

    assert "code" not in describe_error(error)


def test_an_exception_without_a_message_is_told_by_its_name() -> None:
    assert describe_error(ValueError())["message"] == "ValueError"


def test_an_exception_that_cannot_be_printed_is_told_by_its_name() -> None:
    described = describe_error(_raised(Unprintable()))

    assert described["name"] == described["message"] == "Unprintable"
    assert isinstance(described["stack"], str)


def test_an_exception_that_cannot_be_pickled_is_text_like_any_other() -> None:
    described = describe_error(_raised(HoldsALock("held", number=3)))

    assert described["message"] == "held"
    assert json.loads(json.dumps(described)) == described


def test_what_a_database_cannot_hold_is_replaced() -> None:
    described = describe_error(_raised(ValueError("a\x00b\ud800c")))

    assert described["message"] == "a�b?c"
    assert to_json(described) == described


def test_causes_are_part_of_the_traceback() -> None:
    def fails() -> None:
        try:
            raise KeyError("order")
        except KeyError as error:
            raise ValueError("no such order") from error

    with pytest.raises(ValueError, match="no such order") as caught:
        fails()

    stack = describe_error(caught.value)["stack"]
    assert "KeyError: 'order'" in stack
    assert "direct cause" in stack


def test_the_parts_of_a_group_are_in_the_traceback() -> None:
    group = _raised(ExceptionGroup("two", [ValueError("first"), KeyError("second")]))

    assert "ValueError: first" in describe_error(group)["stack"]


def test_an_endless_message_is_cut_in_the_middle() -> None:
    described = describe_error(ValueError("begin" + "x" * 100_000 + "end"))

    assert len(described["message"]) < 8_100
    assert described["message"].startswith("begin")
    assert described["message"].endswith("end")
    assert len(described["stack"]) < 32_100
    assert described["stack"].rstrip().endswith("end")


def test_an_error_without_an_exception_has_a_code_and_a_message() -> None:
    assert coded_error("WORKER_LOST", "gone\x00") == {"message": "gone�", "code": "WORKER_LOST"}


def test_a_failed_step_is_raised_from_what_is_stored() -> None:
    error = WorkflowStepFailedError("charge", {"message": "no funds", "code": "CARD_DECLINED", "name": "CardDeclined"})

    assert str(error) == "no funds"
    assert (error.code, error.error_type, error.step_name) == ("CARD_DECLINED", "CardDeclined", "charge")


def test_a_failed_step_without_a_message_has_the_contracts() -> None:
    assert str(WorkflowStepFailedError("charge", None)) == "Step 'charge' failed after exhausting all retries"


def test_a_failed_run_without_a_message_has_the_contracts() -> None:
    assert str(WorkflowRunFailedError("run", None)) == "Unknown error"
