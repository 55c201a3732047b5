"""What other code may listen to."""

from __future__ import annotations

from django.dispatch import Signal

approval_resolved = Signal()
"""Somebody approved or denied a tool call, wherever they did so. Listen to it to go on with the agent's run.

Receivers get `tool_call_id`, `status` (`"approved"` or `"denied"`) and `using`, the alias of the database. It is sent
once the decision is committed, in the process that decided, and what a receiver raises is logged and reaches nobody.
Hand the work to a task. A process that ends at that moment tells nobody; that a suspended run may go on is also said by
its `pending_approvals`, which are then `None`.
"""
