"""Every operation has an async twin."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.exceptions import StepNotFoundError, WorkflowRunFailedError, WorkflowRunNotFoundError
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.service import SecretService
from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("service_class", [WorkflowService, WorkflowRunService])
def test_every_public_method_has_a_twin(service_class: type[AsyncTwins]) -> None:
    methods = {
        name
        for name, method in vars(service_class).items()
        if inspect.isfunction(method) and not name.startswith("_") and not inspect.iscoroutinefunction(method)
    }
    twins = {name for name, method in vars(service_class).items() if inspect.iscoroutinefunction(method)}

    assert twins == {f"a{name}" for name in methods}
    assert len(twins) >= 8


def test_a_twin_does_what_the_method_does(service: WorkflowService, runs: WorkflowRunService) -> None:
    async def scenario() -> list[Any]:
        run_id = await service.acreate_run("orders", {"n": 1})
        step = await service.ainsert_step_state(run_id, "pack", "work", {"n": 1}, retries=2)
        await service.aset_step_running(step.step_id)
        await service.aset_step_result(step.step_id, 0)
        await service.aupdate_run_state(run_id, "courier", "dhl")
        await service.aupdate_run_status(run_id, "completed", False)
        run = await runs.aget_run(run_id)
        return [
            run.output,
            await service.aget_run_state(run_id),
            [detail.step.result for detail in await runs.aget_run_steps(run_id)],
            [listed.id == run_id for listed in await runs.alist_runs(workflow_name="orders")],
            await runs.adelete_run(run_id),
        ]

    assert async_to_sync(scenario)() == [False, {"courier": "dhl"}, [0], [True], True]


def test_a_run_is_started_and_carried_out(service: WorkflowService, outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow, n: int) -> int:
        return flow.do("add", lambda: n + 1)

    async def scenario() -> list[Any]:
        handle = await service.astart_workflow("order", {"n": 1})
        await service.aorchestrate_workflow(handle.id)
        run = await service.aget_run(handle.id)
        return [run.status, run.output, await service.arun_to_completion("order", {"n": 2})]

    assert async_to_sync(scenario)() == ["completed", 2, 3]


def test_a_workflow_and_its_handle_have_twins_too(outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow, n: int) -> int:
        return n + 1

    async def scenario() -> list[Any]:
        inline = await order.arun({"n": 1})
        queued = await order.astart({"n": 2})
        return [
            (await inline.aget()).output,
            await inline.aresult(),
            (await queued.aget()).status,
            await queued.acancel(),
        ]

    assert async_to_sync(scenario)() == [2, 2, "running", True]


def test_a_handle_is_waited_for_in_async_code(service: WorkflowService, outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow, fails: bool = False) -> str:
        flow.set_state("courier", "dhl")
        if fails:
            raise ValueError("no stock")
        return flow.do("pack", lambda: "packed")

    async def scenario() -> None:
        run = await order.astart(idempotency_key="A1")
        assert (await order.astart(idempotency_key="A1")).created is False
        with pytest.raises(TimeoutError, match="still running after 0 s"):
            await run.await_(timeout=0)
        assert await run.aresume()
        await sync_to_async(outbox.deliver)()
        assert await run.await_(timeout=0) is run
        assert await run.aresult() == "packed"
        assert (await run.aget()).output == "packed"
        assert [step.result for step in await run.asteps()] == ["packed"]
        assert [event.type for event in await run.atimeline()] == ["pending", "running", "succeeded"]
        assert not await run.acancel("too late")

        failed = await order.arun({"fails": True})
        with pytest.raises(WorkflowRunFailedError, match="no stock"):
            await failed.aresult()
        again = await failed.aretry()
        assert again != failed
        assert (await service.aget_run_state(again.id)) == {"courier": "dhl"}
        handle = service.get_handle(again.id)
        assert handle == again
        with pytest.raises(SynchronousOnlyOperation):
            _ = handle.status

    async_to_sync(scenario)()


def test_errors_pass_through(service: WorkflowService) -> None:
    with pytest.raises(StepNotFoundError):
        async_to_sync(service.aget_step_state)("nothing", "pack")
    with pytest.raises(WorkflowRunNotFoundError):
        async_to_sync(service.aorchestrate_workflow)("nothing")


def test_twins_say_what_they_are() -> None:
    twin: Any = inspect.getattr_static(WorkflowService, "aget_run")
    assert twin.__name__ == "aget_run"
    assert twin.__qualname__ == "WorkflowStorage.aget_run"
    assert twin.__doc__ == "Async twin of `get_run`."


def test_secrets_and_credentials_have_twins(use_keys: Callable[..., None]) -> None:
    async def scenario() -> list[Any]:
        secrets, credentials = SecretService(), CredentialService()
        await secrets.aset_secret("API_KEY", {"a": 1})
        await credentials.aset("google", "v", "user-1")
        return [
            (await secrets.aget_secret("API_KEY")).reveal(),
            await secrets.scoped(["API_KEY"]).ahas_secret("API_KEY"),
            (await secrets.aget_secrets(["API_KEY"])).keys() == {"API_KEY"},
            (await credentials.aget("google", "user-1")).reveal(),
            await credentials.aget_all_users(),
            await secrets.adelete_secret("API_KEY"),
            await secrets.ahas_secret("API_KEY"),
        ]

    assert async_to_sync(scenario)() == [{"a": 1}, True, True, "v", ["user-1"], None, False]
