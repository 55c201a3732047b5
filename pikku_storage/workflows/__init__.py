"""Durable workflows. These names may be imported before Django's apps are ready."""

from pikku_storage.workflows.context import StepContext, current_step
from pikku_storage.workflows.definitions import FunctionDefinition, WorkflowDefinition, function, workflow
from pikku_storage.workflows.limits import Limits

__all__ = ["FunctionDefinition", "Limits", "StepContext", "WorkflowDefinition", "current_step", "function", "workflow"]
