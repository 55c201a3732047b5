"""Runs with a past: rows as the engine would have left them, at times a test chooses.

Real runs take no time, and a timeline without time shows nothing. So a story writes the rows of a run itself, attempt
by attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from example_project.databases import DJONGO_ENGINE
from pikku_storage.ids import new_id
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory

ON_DJONGO = connection.settings_dict["ENGINE"] == DJONGO_ENGINE
"""Where users have numbers for ids, and runs are documents."""

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/orders/steps.py", line 41, in charge_card
    payment = bank.charge(card, amount_cents, key=current_step().invocation_id)
  File "/srv/shop/bank/client.py", line 118, in charge
    return self._post("/payments", {"card": card, "amount": amount_cents})
  File "/srv/shop/bank/client.py", line 64, in _post
    raise CardDeclined(answer["reason"])
bank.errors.CardDeclined: insufficient funds"""


def now() -> datetime:
    """Now, in the milliseconds that the tables keep."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@dataclass
class Try:
    """One attempt; times are seconds after the run's start. Without `ended` it is open."""

    created: float
    running: float | None = None
    ended: float | None = None
    scheduled: float | None = None
    error: dict[str, Any] | None = None
    worker: str | None = None


@dataclass
class Story:
    """A run in the making; `tell` writes it."""

    workflow: str = "fulfil_order"
    status: str = "completed"
    started: datetime = field(default_factory=now)
    ended: float = 60.0
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.steps: list[WorkflowStep] = []
        self.attempts: list[WorkflowStepHistory] = []
        self.run_id = self.options.pop("id", None) or new_id()
        self._from: str | None = None

    def at(self, seconds: float) -> datetime:
        """The time so many seconds after the start."""
        return self.started + timedelta(milliseconds=round(seconds * 1000))

    def step(
        self, name: str, tries: Sequence[Try], *, function: str | None = None, due: float | None = None, **options: Any
    ) -> Story:
        """Add a step; its status follows from its last attempt."""
        last = tries[-1]
        status = self._status(last)
        result = options.pop("result", {"ok": True})
        step = WorkflowStep(
            id=options.pop("id", None) or new_id(),
            run_id=self.run_id,
            step_name=name,
            rpc_name=function,
            status=status,
            current_attempt=len(tries),
            created_at=self.at(tries[0].created),
            updated_at=self.at(max(filter(None, [last.created, last.running, last.ended]), default=0)),
            due_at=None if due is None else self.at(due),
            claimed_by=last.worker,
            error=last.error,
            result=result if status == "succeeded" else None,
            from_step_name=options.pop("origin", self._from),
            max_attempts=options.pop("max_attempts", 4),
            **options,
        )
        for number, attempt in enumerate(tries, start=1):
            done = self._status(attempt)
            self.attempts.append(
                WorkflowStepHistory(
                    id=WorkflowStepHistory.id_of(step.id, number),
                    step_id=step.id,
                    attempt=number,
                    status=done,
                    error=attempt.error,
                    result=result if done == "succeeded" else None,
                    created_at=self.at(attempt.created),
                    scheduled_at=None if attempt.scheduled is None else self.at(attempt.scheduled),
                    running_at=None if attempt.running is None else self.at(attempt.running),
                    succeeded_at=self.at(attempt.ended or 0) if done == "succeeded" else None,
                    failed_at=self.at(attempt.ended or 0) if done == "failed" else None,
                    worker=attempt.worker,
                )
            )
        self.steps.append(step)
        self._from = name
        return self

    def tell(self) -> str:
        """Write the rows; answers with the run's id."""
        wire = self.options.pop("wire", {"type": "code"})
        WorkflowRun.objects.bulk_create(
            [
                WorkflowRun(
                    **{
                        "id": self.run_id,
                        "workflow": self.workflow,
                        "status": self.status,
                        "created_at": self.started,
                        "updated_at": self.at(self.ended),
                        "wire": wire,
                        "wire_type": wire.get("type") if isinstance(wire, dict) else None,
                        "state": {},
                        "input": {},
                        **self.options,
                    }
                )
            ]
        )
        WorkflowStep.objects.bulk_create(self.steps, batch_size=500)
        WorkflowStepHistory._default_manager.bulk_create(self.attempts, batch_size=500)
        return self.run_id

    @staticmethod
    def _status(attempt: Try) -> str:
        if attempt.error is not None:
            return "failed"
        if attempt.ended is not None:
            return "succeeded"
        if attempt.running is not None:
            return "running"
        return "pending" if attempt.scheduled is None else "scheduled"


def declined(message: str = "insufficient funds") -> dict[str, Any]:
    """An error as the engine stores it."""
    return {"name": "CardDeclined", "message": message, "code": "E_FUNDS", "stack": TRACEBACK}


def order_in_flight(started: datetime, **options: Any) -> Story:
    """Seven minutes of an order: a retry, a fan-out with a retry, a sleep, and a courier that is being called again."""
    story = Story(
        status="running",
        started=started,
        ended=452,
        options={
            "owner_id": "alice",
            "idempotency_key": "order-A17",
            "wire": {"type": "http", "pikkuUserId": "alice"},
            "input": {
                "order_id": "A17",
                "email": "alice@example.com",
                "items": [
                    {"sku": "TEA-SENCHA-100", "quantity": 2},
                    {"sku": "TEA-ASSAM-250", "quantity": 1},
                    {"sku": "POT-IRON-06", "quantity": 1},
                    {"sku": "CUP-GLASS-02", "quantity": 4},
                ],
                "gift": None,
                "total_cents": 4200,
            },
            "state": {"courier": "dhl", "packed": 8},
            "last_worker": "celery@web-2",
            "inline": False,
            **options,
        },
    )
    one, two = "celery@web-1", "celery@web-2"
    timeout = {
        "name": "CourierTimeout",
        "message": "dhl did not answer within 10 s",
        "code": "STEP_TIMEOUT",
        "stack": TRACEBACK.replace("CardDeclined", "CourierTimeout"),
    }
    story.step("reserve stock", [Try(0, 2, 14, worker=one)], function="reserve_stock", data={"order_id": "A17"})
    story.step(
        "charge card",
        [Try(14, 16, 44, error=declined(), worker=one), Try(74, 74, 92.2, worker=two)],
        function="charge_card",
        data={"order_id": "A17", "amount_cents": 4200, "card": "tok_8d1c9f"},
        result={"payment_id": "pay_01HF7Q", "captured": True},
    )
    for index, (queued, ran) in enumerate([(5, 34), (6, 42), (12, 22), (14, 44)]):
        tries = [Try(92.2, 92.2 + queued, 92.2 + queued + ran, scheduled=92.3, worker=(one, two)[index % 2])]
        if index == 2:
            tries[0].error = {"name": "ScaleError", "message": "the scale is not level", "stack": TRACEBACK}
            tries.append(Try(134.2, 134.2, 168, worker=one))
        story.step(
            f"pack[{index}]",
            tries,
            function="pack_item",
            group="pack",
            queue="celery",
            data={"sku": "TEA-SENCHA-100", "quantity": index + 1},
            origin="charge card",
        )
    story.step(
        "cool down", [Try(168, None, 288, scheduled=168)], data={"duration": 120000}, origin="pack[3]", max_attempts=1
    )
    story.step(
        "book parcel",
        [Try(288, 290, 338, error=timeout, worker=two), Try(368, 368, 408, error=timeout, worker=one)],
        function="book_parcel",
        due=528,
        data={"order_id": "A17", "courier": "dhl", "postcode": "04109", "pieces": 8},
        max_attempts=6,
    )
    return story


def failed_order(started: datetime, **options: Any) -> Story:
    """An order whose card was declined for good, with what undoes it."""
    story = Story(
        status="failed",
        started=started,
        ended=31,
        options={
            "owner_id": "bob",
            "error": {
                **declined(),
                "name": "WorkflowStepFailedError",
                "step": "charge card",
            },
            "input": {"order_id": "B4"},
            **options,
        },
    )
    story.step("reserve stock", [Try(0, 0.4, 4, worker="celery@web-1")], function="reserve_stock")
    story.step(
        "charge card",
        [Try(4, 4, 9, error=declined()), Try(11, 11, 15, error=declined()), Try(19, 19, 24, error=declined())],
        function="charge_card",
        max_attempts=3,
    )
    story.step("charge card:onError", [Try(24, 24, 31, worker="celery@web-1")], function="undo_order")
    return story


def sleeping_order(started: datetime, **options: Any) -> Story:
    """An order that sleeps until an hour after its start."""
    story = Story(status="running", started=started, ended=2, options=options)
    story.step("reserve stock", [Try(0, 0, 2)], function="reserve_stock")
    story.step("cool down", [Try(2, scheduled=2)], data={"duration": 3_598_000}, due=3600, max_attempts=1)
    return story
