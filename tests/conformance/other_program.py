"""Another program on the same MongoDB, which knows nothing but the contract (tables.md §4, services.md §1): it has the
driver, and none of our models.

`python -m tests.conformance.other_program URL DATABASE` does what it is told, one JSON object `{do, with}` a line, and
answers each with a line of JSON.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

STAMPS = {"running": "runningAt", "scheduled": "scheduledAt", "succeeded": "succeededAt", "failed": "failedAt"}


def now() -> datetime:
    """As JavaScript tells the time."""
    moment = datetime.now(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class OtherProgram:
    """What its services do, document by document."""

    def __init__(self, database: Any) -> None:
        self.database = database

    def init(self) -> None:
        """Make the indexes, as each service does when it starts. (It also asks for one of `_id`, which is there.)"""
        of = self.database
        of["workflow_runs"].create_index("workflow")
        of["workflow_runs"].create_index("status")
        of["workflow_runs"].create_index([("createdAt", -1)])
        of["workflow_step"].create_index([("workflowRunId", 1), ("stepName", 1)], unique=True)
        of["workflow_step"].create_index("workflowRunId")
        of["workflow_step_history"].create_index("workflowStepId")
        of["workflow_step_history"].create_index("createdAt")
        of["workflow_versions"].create_index([("workflowName", 1), ("graphHash", 1)], unique=True)
        of["agent_threads"].create_index("resourceId")
        of["agent_message"].create_index([("threadId", 1), ("createdAt", 1)])
        of["agent_tool_call"].create_index("threadId")
        of["agent_tool_call"].create_index("messageId")
        of["agent_working_memory"].create_index([("id", 1), ("scope", 1)], unique=True)
        of["agent_run"].create_index([("threadId", 1), ("createdAt", 1)])
        of["agent_run_score"].create_index([("runId", 1), ("createdAt", 1)])
        of["channel_subscriptions"].create_index([("channelId", 1), ("topic", 1)], unique=True)
        of["channel_subscriptions"].create_index("topic")
        of["pikku_deployments"].create_index("lastHeartbeat")
        of["pikku_deployments"].create_index("functions")
        of["secrets_audit"].create_index("secretKey")

    # -- anything ------------------------------------------------------------------------------------------------------

    def put(self, collection: str, *documents: dict[str, Any]) -> None:
        """Insert documents."""
        self.database[collection].insert_many(list(documents))

    def find(self, collection: str, **where: Any) -> list[dict[str, Any]]:
        """The documents that meet `where`."""
        return list(self.database[collection].find(where))

    def change(self, collection: str, where: dict[str, Any], values: dict[str, Any], upsert: bool = False) -> int:
        """Set fields; how many documents it matched."""
        return int(self.database[collection].update_many(where, {"$set": values}, upsert=upsert).matched_count)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def create_run(self, workflow: str, run_input: Any = None, wire: Any = None) -> str:
        """A run that has begun."""
        run_id, at = str(uuid4()), now()
        document = {
            "_id": run_id,
            "workflow": workflow,
            "status": "running",
            "input": run_input,
            "output": None,
            "error": None,
            "state": {},
            "inline": False,
            "graphHash": None,
            "deterministic": False,
            "plannedSteps": [],
            "wire": wire,
            "createdAt": at,
            "updatedAt": at,
        }
        self.put("workflow_runs", document)
        return run_id

    def set_state(self, run_id: str, key: str, value: Any) -> None:
        """One key of a run's state."""
        change = {"$set": {f"state.{key}": value, "updatedAt": now()}}
        self.database["workflow_runs"].update_one({"_id": run_id}, change)

    def set_keys(self, run_id: str, keys: list[str]) -> None:
        """Several keys, one after the other."""
        for key in keys:
            self.set_state(run_id, key, key)

    def end_run(self, run_id: str, status: str, output: Any = None, error: Any = None) -> None:
        """A run's status, output and error."""
        self.change("workflow_runs", {"_id": run_id}, {"status": status, "output": output, "error": error})

    # -- steps ---------------------------------------------------------------------------------------------------------

    def insert_step(self, run_id: str, name: str, rpc: str | None = None, data: Any = None, retries: Any = None) -> str:
        """A pending step with its first attempt."""
        step_id, at = str(uuid4()), now()
        document = {
            "_id": step_id,
            "workflowRunId": run_id,
            "stepName": name,
            "rpcName": rpc,
            "data": data,
            "status": "pending",
            "result": None,
            "error": None,
            "branchTaken": None,
            "retries": retries,
            "retryDelay": "0",
            "fromStepName": None,
            "createdAt": at,
            "updatedAt": at,
        }
        self.put("workflow_step", document)
        self._insert_attempt(step_id, "pending")
        return step_id

    def claim(self, run_id: str, name: str) -> str | None:
        """Take a step (services.md §1.5): its id, or nothing."""
        step = self.database["workflow_step"].find_one({"workflowRunId": run_id, "stepName": name})
        if step["status"] in {"succeeded", "running"}:
            return None
        before = ["failed"] if step["status"] == "failed" else ["pending", "scheduled"]
        mine = {"_id": step["_id"], "status": {"$in": before}}
        if not self.change("workflow_step", mine, {"status": "running", "updatedAt": now()}):
            return None
        if before == ["failed"]:
            cleared = {"status": "running", "result": None, "error": None, "updatedAt": now()}
            self.change("workflow_step", {"_id": step["_id"]}, cleared)
            self._insert_attempt(step["_id"], "running")
        else:
            self.set_step(step["_id"], "running")
        return str(step["_id"])

    def set_step(self, step_id: str, status: str, **values: Any) -> None:
        """A step's status, and its newest attempt's."""
        self.change("workflow_step", {"_id": step_id}, {"status": status, **values, "updatedAt": now()})
        newest = {"$set": {"status": status, **values, STAMPS[status]: now()}}
        attempts = self.database["workflow_step_history"]
        attempts.find_one_and_update({"workflowStepId": step_id}, newest, sort=[("createdAt", -1)])

    def succeed(self, step_id: str, result: Any) -> None:
        """A step's result."""
        self.set_step(step_id, "succeeded", result=result, error=None)

    def fail(self, step_id: str, message: str) -> None:
        """A step's error."""
        self.set_step(step_id, "failed", result=None, error={"message": message, "stack": None, "code": None})

    def attempts(self, step_id: str) -> list[str]:
        """What became of the attempts of a step, in order; their number is how often it was tried."""
        found = self.database["workflow_step_history"].find({"workflowStepId": step_id}).sort("createdAt", 1)
        return [attempt["status"] for attempt in found]

    def _insert_attempt(self, step_id: str, status: str) -> None:
        stamps = {field: now() if name == status else None for name, field in STAMPS.items()}
        made = {"_id": str(uuid4()), "workflowStepId": step_id, "status": status, "result": None, "error": None}
        self.put("workflow_step_history", {**made, "createdAt": now(), **stamps})

    # -- the rest ------------------------------------------------------------------------------------------------------

    def save_memory(self, memory_id: str, scope: str, data: Any) -> None:
        """A working memory."""
        self.change(
            "agent_working_memory", {"id": memory_id, "scope": scope}, {"data": data, "updatedAt": now()}, upsert=True
        )

    def save_session(self, user_id: str, session: Any) -> None:
        """A session."""
        change = {"$set": {"session": session, "updatedAt": now()}, "$setOnInsert": {"createdAt": now()}}
        self.database["pikkuUserSessions"].update_one({"_id": user_id}, change, upsert=True)

    def deploy(self, deployment_id: str, endpoint: str, functions: list[str]) -> None:
        """A deployment that is up."""
        change = {
            "$set": {"endpoint": endpoint, "lastHeartbeat": now(), "functions": functions},
            "$setOnInsert": {"createdAt": now()},
        }
        self.database["pikku_deployments"].update_one({"_id": deployment_id}, change, upsert=True)

    def endpoint_of(self, function: str) -> str | None:
        """Where the newest deployment that serves a function is."""
        found = self.database["pikku_deployments"].find_one({"functions": function}, sort=[("lastHeartbeat", -1)])
        return None if found is None else str(found["endpoint"])

    def topics_of(self, channel_id: str) -> list[str]:
        """What a channel hears of."""
        found = self.database["channel_subscriptions"].find({"channelId": channel_id})
        return sorted(each["topic"] for each in found)


def main() -> None:
    """See the module."""
    from bson import json_util
    from pymongo import MongoClient

    program = OtherProgram(MongoClient(sys.argv[1])[sys.argv[2]])
    for line in sys.stdin:
        order = json_util.loads(line)
        answer = getattr(program, order["do"])(*order["with"])
        sys.stdout.write(json_util.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
