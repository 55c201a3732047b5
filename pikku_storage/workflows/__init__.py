"""Durable workflows. These names may be imported before Django's apps are ready."""

from pikku_storage.workflows.context import StepContext, current_step
from pikku_storage.workflows.definitions import FunctionDefinition, WorkflowDefinition, function, workflow

__all__ = ["FunctionDefinition", "StepContext", "WorkflowDefinition", "current_step", "function", "workflow"]
