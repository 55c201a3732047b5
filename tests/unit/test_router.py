"""Where the package's tables go."""

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from pikku_storage.db.router import PikkuRouter
from pikku_storage.workflows.models import WorkflowRun


@pytest.fixture
def router(settings: Settings) -> PikkuRouter:
    settings.PIKKU_STORAGE = {"DATABASE": "runs"}
    return PikkuRouter()


def test_our_models_are_kept_in_the_database_that_the_setting_names(router: PikkuRouter) -> None:
    assert router.db_for_read(WorkflowRun) == router.db_for_write(WorkflowRun) == "runs"


def test_others_models_are_not_its_business(router: PikkuRouter) -> None:
    assert router.db_for_read(User) is router.db_for_write(User) is None


@pytest.mark.parametrize(
    ("database", "app", "answer"),
    [
        ("runs", "pikku_workflows", True),
        ("default", "pikku_workflows", False),
        ("runs", "auth", False),
        ("default", "auth", None),
    ],
)
def test_only_our_tables_are_made_there(router: PikkuRouter, database: str, app: str, answer: bool | None) -> None:
    assert router.allow_migrate(database, app) is answer


def test_in_the_project_s_own_database_all_tables_are_made(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {}
    assert PikkuRouter().allow_migrate("default", "pikku_workflows") is True
    assert PikkuRouter().allow_migrate("default", "auth") is None


@pytest.mark.parametrize(
    ("app", "answer"), [("pikku_workflows", True), ("pikku_agents", False), ("auth", False), ("orders", False)]
)
def test_a_mirror_has_the_tables_of_workflows_and_no_others(settings: Settings, app: str, answer: bool) -> None:
    settings.PIKKU_STORAGE = {"MIRROR": "copy"}
    assert PikkuRouter().allow_migrate("copy", app) is answer
    assert PikkuRouter().db_for_write(WorkflowRun) == "default"


def test_the_project_s_own_database_may_be_the_mirror(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DATABASE": "runs", "MIRROR": "default"}
    assert PikkuRouter().allow_migrate("default", "pikku_workflows") is True
    assert PikkuRouter().allow_migrate("default", "auth") is None
    assert PikkuRouter().allow_migrate("runs", "auth") is False


def test_a_database_that_is_named_for_an_agent_has_the_tables_of_agents(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"AGENT_DATABASES": {"archivist": "default", "echo": None}, "DATABASE": "runs"}
    router = PikkuRouter()
    assert [router.allow_migrate("default", app) for app in ("pikku_agents", "pikku_workflows", "auth")] == [
        True,
        False,
        None,
    ]
