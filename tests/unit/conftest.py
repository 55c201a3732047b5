"""Definitions that a test makes are gone after it."""

from collections.abc import Iterator

import pytest

from pikku_storage.workflows.registry import registry


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    functions, workflows = dict(registry.functions), dict(registry.workflows)
    yield
    registry.functions, registry.workflows = functions, workflows
