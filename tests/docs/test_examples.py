"""Every Python example of the documentation runs, against the real code and a real database."""

from pathlib import Path
from typing import Any

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps

from tests.docs.markdown import PAGES, Block, name_of, runnable

# Models of the examples need an installed app that they belong to. Their registry and tables last as long as a page.
APP = "console"
PAGES_THAT_RUN = [page for page in PAGES if runnable(page)]


@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=name_of)
def test_the_examples_of_a_page_run_in_their_order(page: Path, worker: None) -> None:
    namespace: dict[str, Any] = {"__name__": f"{APP}.examples"}
    tables: list[type[models.Model]] = []
    with isolate_apps(APP) as apps:
        assert apps is not None
        try:
            for block in runnable(page):
                exec(_compiled(block), namespace)  # noqa: S102 - our own documentation
                new = [model for model in apps.get_models() if model not in tables]
                _create(new)
                tables += new
        finally:
            _drop(tables)


def _compiled(block: Block) -> Any:
    # The blank lines in front make tracebacks, and the source of a workflow, point into the page.
    return compile("\n" * (block.line - 1) + block.text, str(block.page), "exec", dont_inherit=True)


def _create(tables: list[type[models.Model]]) -> None:
    if tables:
        with connection.schema_editor() as editor:
            for model in tables:
                editor.create_model(model)


def _drop(tables: list[type[models.Model]]) -> None:
    if tables:
        with connection.schema_editor() as editor:
            for model in reversed(tables):
                editor.delete_model(model)
