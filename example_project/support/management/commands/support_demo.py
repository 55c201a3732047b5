"""`manage.py support_demo`: a customer asks for a refund, a colleague approves it, and a workflow gives it."""

from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.management import BaseCommand, call_command

from example_project.orders.demo.data import load, make_users
from example_project.orders.demo.progress import order_input
from example_project.orders.intake import read_catalogue, read_orders
from example_project.orders.models import Order
from example_project.orders.workflows import fulfil_order
from example_project.support.agent import SupportAgent
from example_project.support.models import GoodwillRefund
from example_project.support.workflows import refund_order
from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.workflows.service import WorkflowService

ORDER = "A1002"
CONVERSATION = ("Hello", f"Where is my order {ORDER}?", f"It came broken. I want a refund for {ORDER}.")


class Command(BaseCommand):
    help = (
        "Drive a whole conversation with the support agent, with an approval and the refund that follows, and print it."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        colleague, _ = make_users()
        customer = self._customer_with_an_order()

        access = AgentAccess(customer)
        thread = access.create_thread(title="A broken kettle")
        agent = SupportAgent(access, thread.id)
        for text in CONVERSATION:
            async_to_sync(agent.answer)(text)
        desk = AgentAccess(colleague, admins=True)
        (run,) = desk.list_runs(thread_id=thread.id, limit=1)
        for approval in desk.get_run(run.run_id).pending_approvals or ():
            self.stdout.write(f"To approve: {approval.display_tool_name}, {approval.display_args}\n\n")
            async_to_sync(SupportAgent(desk, thread.id).decide)(approval.tool_call_id, "approved")
            # The same key is the same run. A worker would have begun it by itself.
            refund = refund_order.start({"order_id": ORDER}, owner=customer, idempotency_key=approval.tool_call_id)
            WorkflowService().orchestrate_workflow(refund.id)

        for message in agent.history.messages():
            self.stdout.write(f"{message['role']:>9}  {_shown(message)}")
        (given,) = GoodwillRefund.objects.filter(order_id=ORDER)
        self.stdout.write(f"\nThe workflow {refund_order.name} gave back {given.amount_cents / 100:.2f}.")

    def _customer_with_an_order(self) -> User:
        """Somebody whose order was shipped. What an earlier demo left of them is forgotten."""
        catalogue = read_catalogue()
        orders, _ = read_orders(catalogue)
        load(catalogue, [order for order in orders if order.id == ORDER])
        order = Order.objects.get(pk=ORDER)
        fulfil_order.run(order_input(order), idempotency_key=f"order-{ORDER}")
        customer, _ = User.objects.get_or_create(username="rosa", defaults={"email": order.email})
        AgentStorageService().erase_user(customer)
        GoodwillRefund.objects.filter(order=order).delete()
        return customer


def _shown(message: dict[str, Any]) -> str:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return str(message["content"] or ", ".join(f"{call['name']}({call['arguments']})" for call in calls))
