"""Durable workflows. These names may be imported before Django's apps are ready."""

from pikku_storage.workflows.context import StepContext, current_step
from pikku_storage.workflows.definitions import FunctionDefinition, WorkflowDefinition, function, workflow
from pikku_storage.workflows.graphs.declaration import GraphDefinition, graph, node
from pikku_storage.workflows.graphs.values import item, ref, template, trigger
from pikku_storage.workflows.limits import Limits

__all__ = [
    "FunctionDefinition",
    "GraphDefinition",
    "Limits",
    "StepContext",
    "WorkflowDefinition",
    "current_step",
    "function",
    "graph",
    "item",
    "node",
    "ref",
    "template",
    "trigger",
    "workflow",
]
