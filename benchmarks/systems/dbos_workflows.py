"""The same work for DBOS. Importing this registers it, so only what needs DBOS imports it."""

from __future__ import annotations

import sys
import threading
from typing import Any

from dbos import DBOS, DBOSConfig

QUEUE = "bench"
POLLING = 0.01
"""Seconds between two polls of the queue, and between two looks for a result. DBOS's own default of 1 s would hide
everything else."""
_VERSION = "bench"


@DBOS.step()
def add_one(number: int) -> int:
    """A step that adds one."""
    return number + 1


@DBOS.workflow()
def chain(steps: int) -> int:
    """Steps one after the other."""
    number = 0
    for _ in range(steps):
        number = add_one(number)
    return number


@DBOS.workflow()
def one(number: int) -> int:
    """What is fanned out: in DBOS that is a workflow of its own, here with one step."""
    return add_one(number)


@DBOS.workflow()
def fan_out(steps: int) -> int:
    """Side by side in threads of this process, and the sum of the results."""
    handles = [DBOS.start_workflow(one, index) for index in range(steps)]
    return sum(handle.get_result(polling_interval_sec=POLLING) for handle in handles)


@DBOS.workflow()
def queued_fan_out(steps: int) -> int:
    """Side by side over the workers of the queue, and the sum of the results."""
    handles = [DBOS.enqueue_workflow(QUEUE, one, index) for index in range(steps)]
    return sum(handle.get_result(polling_interval_sec=POLLING) for handle in handles)


def launch(url: str, executor: str, *, serves_queue: bool) -> None:
    """Launch DBOS in this process; its tables are made if they are missing."""
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "application_version": _VERSION,
        "executor_id": executor,
        "console_log_level": "ERROR",
        "enable_otlp": False,
        # A worker is paused while others are measured, perhaps in mid-transaction.
        "sys_db_idle_transaction_timeout_sec": 0,
    }
    DBOS(config=config)
    DBOS.listen_queues([QUEUE] if serves_queue else [])
    DBOS.launch()
    if serves_queue:
        DBOS.register_queue(QUEUE, polling_interval_sec=POLLING)


def enqueue_options(workflow: Any) -> Any:
    """What a client says to have `workflow` done by the workers."""
    return {"queue_name": QUEUE, "workflow_name": workflow.__qualname__, "app_version": _VERSION}


if __name__ == "__main__":
    # A worker: `python -m benchmarks.systems.dbos_workflows URL EXECUTOR`. The module is imported under the name by
    # which clients know its workflows.
    from benchmarks.systems import dbos_workflows

    dbos_workflows.launch(sys.argv[1], sys.argv[2], serves_queue=True)
    threading.Event().wait()
