"""The reference says what the code says: settings, checks, exceptions, transitions, columns, signatures."""

import ast
import inspect
import re
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from celery import Task
from django.apps import apps
from django.core.management import BaseCommand, load_command_class
from django.test import override_settings

from pikku_storage import exceptions, testing
from pikku_storage.access import records as access_records
from pikku_storage.access.service import ScopeService
from pikku_storage.access.sessions import SessionStore
from pikku_storage.agents import tasks as agent_tasks
from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.runs import AgentRunService
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.statuses import ApprovalStatus
from pikku_storage.audit import Audit
from pikku_storage.audit.service import AuditService
from pikku_storage.auditing import AuditEvent
from pikku_storage.channels import tasks as channel_tasks
from pikku_storage.channels.asgi import CODES, ChannelEndpoint
from pikku_storage.channels.hub import EventHub
from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.conf import KEYS, settings
from pikku_storage.deployments import tasks as deployment_tasks
from pikku_storage.deployments.records import Deployment
from pikku_storage.deployments.service import DeploymentService
from pikku_storage.durations import to_milliseconds
from pikku_storage.secrets import secret
from pikku_storage.secrets.credentials import CredentialService, ScopedCredentials
from pikku_storage.secrets.keys import SettingsKeys
from pikku_storage.secrets.service import ScopedSecrets, SecretService
from pikku_storage.testing import plugin
from pikku_storage.virtual_users.service import VirtualUserRunStore, VirtualUserScheduleStore
from pikku_storage.virtual_users.ticking import Outcome, tick
from pikku_storage.webhooks import sign_webhook, verify_webhook
from pikku_storage.webhooks import tasks as webhook_tasks
from pikku_storage.webhooks.records import Attempt, Delivery, DeliveryWithAttempts
from pikku_storage.webhooks.service import WebhookService
from pikku_storage.workflows import (
    GraphDefinition,
    Limits,
    StepContext,
    errors,
    graph,
    invariants,
    node,
    records,
    tasks,
    timeline,
)
from pikku_storage.workflows.definitions import FunctionDefinition, WorkflowDefinition, function, workflow
from pikku_storage.workflows.engine import waits
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.graphs.view import EdgeView, GraphView, NodeView
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.routing import RELAY_ENTRY, RELAY_EXPIRES, SENDING_LIMITS
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.schedules.service import ScheduleService
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import (
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    RunStatus,
    StepStatus,
    VersionStatus,
)
from tests.docs.markdown import DOCS, ROOT, codes_in, headings_of, prose_of, table_rows
from tests.docs.signatures import public_methods, public_properties, signature_text

REFERENCE = DOCS / "reference"
PACKAGES = [ROOT / "pikku_storage", ROOT / "console"]
# What a definition offers beside its methods and options.
LIMITS_GUIDE = DOCS / "how-to" / "limit-concurrency-and-rate.md"
DEFINITION = REFERENCE / "workflows-and-functions.md"


def code_headings(page: Path) -> list[str]:
    return [heading.strip("`") for heading in headings_of(page) if heading.startswith("`")]


# -- settings ----------------------------------------------------------------------------------------------------------


def test_every_setting_is_documented_and_no_other() -> None:
    assert sorted(code_headings(REFERENCE / "settings.md")) == sorted(KEYS)


@pytest.mark.parametrize("key", sorted(KEYS))
def test_the_documented_default_of_a_setting_is_the_one_it_has(key: str) -> None:
    rows = {codes_in(row[0])[0]: codes_in(row[1])[0] for row in table_rows(REFERENCE / "settings.md", "Settings")}
    with override_settings(PIKKU_STORAGE={}):
        default = getattr(settings, key)
    with override_settings(PIKKU_STORAGE={key: ast.literal_eval(rows[key])}):
        assert getattr(settings, key) == default


# -- system checks -----------------------------------------------------------------------------------------------------


def test_every_system_check_is_documented_and_no_other() -> None:
    ids = {
        match
        for package in PACKAGES
        for path in package.rglob("*.py")
        for match in re.findall(r"id=\"(pikku[\w.]*\.[EWID]\d{3})\"", path.read_text(encoding="utf-8"))
    }
    assert sorted(code_headings(REFERENCE / "system-checks.md")) == sorted(ids)


def test_every_system_check_has_a_cause_and_a_remedy() -> None:
    page = prose_of(REFERENCE / "system-checks.md")
    for section in page.split("\n## ")[1:]:
        assert "Cause: " in section, section
        assert "Remedy: " in section, section


# -- exceptions --------------------------------------------------------------------------------------------------------


def own_exceptions() -> dict[str, type[BaseException]]:
    return {
        name: value
        for name, value in vars(exceptions).items()
        if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == exceptions.__name__
    }


def test_every_exception_is_documented_with_its_base_status_and_code() -> None:
    documented = {
        codes_in(row[0])[0]: (codes_in(row[1]), row[2], codes_in(row[3]))
        for row in table_rows(REFERENCE / "exceptions.md", "Exceptions")
    }
    expected = {}
    for name, cls in own_exceptions().items():
        code = inspect.getattr_static(cls, "code", None)
        status = getattr(cls, "http_status", "")
        bases = [base.__name__ for base in cls.__bases__]
        expected[name] = (bases, str(status), [code] if isinstance(code, str) else [])
    assert documented == expected


def test_every_exception_is_explained() -> None:
    explained = re.findall(r"^\* (`.+?):", prose_of(REFERENCE / "exceptions.md"), re.MULTILINE)
    names = [name for item in explained for name in codes_in(item)]
    # The base of all needs no more than its row.
    assert sorted([*names, "PikkuError"]) == sorted(own_exceptions())


def test_every_code_of_a_stored_error_is_documented() -> None:
    documented = {codes_in(row[0])[0] for row in table_rows(REFERENCE / "exceptions.md", "Codes in stored errors")}
    of_exceptions = {inspect.getattr_static(cls, "code", None) for cls in own_exceptions().values()}
    of_engine = {value for name, value in vars(errors).items() if name.isupper() and not name.startswith("_")}
    assert documented == {code for code in of_exceptions | of_engine if isinstance(code, str)}


# -- statuses ----------------------------------------------------------------------------------------------------------


def transitions(heading: str) -> dict[str, list[str]]:
    section = prose_of(REFERENCE / "statuses.md").split(f"## {heading}\n", 1)[1].split("\n## ")[0]
    rows = section.split("| from | to |\n|---|---|\n", 1)[1].splitlines()
    cells = [row.strip("|").split("|") for row in rows if row.startswith("|")]
    return {codes_in(before)[0]: codes_in(after) for before, after in cells}


@pytest.mark.parametrize(
    ("heading", "table", "statuses"), [("Runs", RUN_TRANSITIONS, RunStatus), ("Steps", STEP_TRANSITIONS, StepStatus)]
)
def test_the_transitions_are_those_of_the_code(heading: str, table: Any, statuses: Any) -> None:
    expected = {
        before.value: [status.value for status in statuses if status in following]
        for before, following in table.items()
    }
    assert transitions(heading) == expected


@pytest.mark.parametrize(
    ("heading", "statuses"), [("Runs", RunStatus), ("Steps", StepStatus), ("Versions", VersionStatus)]
)
def test_every_status_is_explained(heading: str, statuses: Any) -> None:
    explained = [codes_in(row[0])[0] for row in table_rows(REFERENCE / "statuses.md", heading)]
    assert explained == [status.value for status in statuses]


# -- tables ------------------------------------------------------------------------------------------------------------

TYPES = {
    "CharField": "text",
    "ForeignKey": "text",
    "JSONField": "JSON",
    "BooleanField": "boolean",
    "DateTimeField": "time",
    "IntegerField": "integer",
    "TextField": "text",
    "BigIntegerField": "integer",
    "FloatField": "number",
}
APPS = [
    "pikku_workflows",
    "pikku_secrets",
    "pikku_access",
    "pikku_agents",
    "pikku_audit",
    "pikku_webhooks",
    "pikku_deployments",
    "pikku_channels",
    "pikku_virtual_users",
]


@pytest.mark.parametrize(
    "model",
    [model for app in APPS for model in apps.get_app_config(app).get_models()],
    ids=lambda model: model.__name__,
)
def test_every_column_is_documented_with_its_type(model: Any) -> None:
    documented = [
        (codes_in(row[0])[0], row[1], row[2])
        for row in table_rows(REFERENCE / "database.md", f"`{model._meta.db_table}`")
    ]
    assert documented == [
        (field.column, TYPES[field.get_internal_type()], "yes" if field.null else "")
        for field in model._meta.concrete_fields
    ]


# -- public names ------------------------------------------------------------------------------------------------------


def section_of(page: Path, heading: str, *, level: int = 2) -> str:
    marks = "#" * level
    return re.split(rf"^#{{1,{level}}} ", prose_of(page).split(f"\n{marks} {heading}\n", 1)[1], flags=re.MULTILINE)[0]


def documented_signatures(text: str) -> list[str]:
    cells = [line.strip("|").split("|")[0] for line in text.splitlines() if line.startswith("| `")]
    return [code for cell in cells for code in codes_in(cell) if "(" in code]


def signatures(cls: type) -> list[str]:
    return [signature_text(name, method) for name, method in public_methods(cls).items()]


@pytest.mark.parametrize("cls", [WorkflowService, WorkflowRunService, ScheduleService], ids=lambda cls: cls.__name__)
def test_every_operation_of_a_service_is_documented(cls: type) -> None:
    text = section_of(REFERENCE / "services.md", f"`{cls.__name__}`")
    assert documented_signatures(text) == signatures(cls)


@pytest.mark.parametrize(
    "cls", [SecretService, ScopedSecrets, CredentialService, ScopedCredentials], ids=lambda cls: cls.__name__
)
def test_every_operation_of_secrets_and_credentials_is_documented(cls: type) -> None:
    assert documented_signatures(section_of(REFERENCE / "secrets.md", f"`{cls.__name__}`")) == signatures(cls)


@pytest.mark.parametrize("cls", [ScopeService, SessionStore], ids=lambda cls: cls.__name__)
def test_every_operation_of_scopes_and_sessions_is_documented(cls: type) -> None:
    assert documented_signatures(section_of(REFERENCE / "access.md", f"`{cls.__name__}`")) == signatures(cls)


def test_the_functions_and_records_of_access_are_documented() -> None:
    page = REFERENCE / "access.md"
    for text in documented_signatures(section_of(page, "Functions")):
        module, _, signature = text.partition(".")
        name = signature.partition("(")[0]
        found = getattr(import_module(f"pikku_storage.access.{module}"), name)
        assert signature == signature_text(name, found, skip=0)
    listed = re.findall(r"^\| `(\w+)` \| (.+) \|$", section_of(page, "`ScopeService`"), re.MULTILINE)
    for name, text in listed:
        names = [field.name for field in fields(getattr(access_records, name))]
        assert [code for code in codes_in(text) if code in names] == names
    assert {name for name, _ in listed} == {name for name in vars(access_records) if name[0].isupper()} - {"Literal"}


@pytest.mark.parametrize("cls", [AgentStorageService, AgentRunService, AgentAccess], ids=lambda cls: cls.__name__)
def test_every_operation_of_agents_is_documented(cls: type) -> None:
    assert documented_signatures(section_of(REFERENCE / "agents.md", f"`{cls.__name__}`")) == signatures(cls)


def test_every_operation_of_the_audit_trail_is_documented() -> None:
    page = REFERENCE / "audit.md"
    assert documented_signatures(section_of(page, "`AuditService`")) == signatures(AuditService)
    text = section_of(page, "`audit_context` and `@audited`")
    assert f"`{signature_text('audit_context', Audit.__init__)}`" in text
    for name in ("note", "anote"):
        assert f"`{signature_text(name, getattr(Audit, name))}`" in text
    named = {code for row in table_rows(page, "Events") for code in codes_in(row[0])}
    assert named == {field.name for field in fields(AuditEvent)}


def test_every_operation_of_webhooks_is_documented() -> None:
    page = REFERENCE / "webhooks.md"
    assert documented_signatures(section_of(page, "`WebhookService`")) == signatures(WebhookService)
    for of in (sign_webhook, verify_webhook):
        assert f"`{signature_text(of.__name__, of, skip=0)}`" in prose_of(page)
    for record in (Delivery, Attempt, DeliveryWithAttempts):
        row = next(row for row in table_rows(page, "Records") if codes_in(row[0]) == [record.__name__])
        assert codes_in(row[1]) == [field.name for field in fields(record)]


def test_what_services_share_is_documented() -> None:
    page = REFERENCE / "deployments.md"
    assert documented_signatures(section_of(page, "`DeploymentService`")) == signatures(DeploymentService)
    assert {field.name for field in fields(Deployment)} <= set(codes_in(section_of(page, "`DeploymentService`")))
    for heading, package in (("Functions", "deployments"), ("Pure functions", "crypto")):
        for text in documented_signatures(section_of(page, heading)):
            module, _, signature = text.partition(".")
            name = signature.partition("(")[0]
            found = getattr(import_module(f"pikku_storage.{package}.{module}"), name)
            assert signature == signature_text(name, found, skip=0)


@pytest.mark.parametrize("cls", [ChannelStore, EventHubStore, EventHub], ids=lambda cls: cls.__name__)
def test_every_operation_of_channels_is_documented(cls: type) -> None:
    assert documented_signatures(section_of(REFERENCE / "channels.md", f"`{cls.__name__}`")) == signatures(cls)


def test_what_an_endpoint_decides_and_says_is_documented() -> None:
    text = section_of(REFERENCE / "channels.md", "`ChannelEndpoint`")
    assert documented_signatures(text) == signatures(ChannelEndpoint)
    attributes = re.findall(r"^\| `(\w+)` \| `(.+?)` \|", text, re.MULTILINE)
    given = {name: value for name, value in vars(ChannelEndpoint).items() if isinstance(value, str | int)}
    assert {name: ast.literal_eval(value) for name, value in attributes} == {
        name: value for name, value in given.items() if not name.startswith("_")
    }
    codes = re.findall(r"^\| (\d{4}) \|", text, re.MULTILINE)
    assert {str(code) for code in CODES.values()} <= set(codes)


@pytest.mark.parametrize("cls", [VirtualUserRunStore, VirtualUserScheduleStore], ids=lambda cls: cls.__name__)
def test_every_operation_of_virtual_users_is_documented(cls: type) -> None:
    assert documented_signatures(section_of(REFERENCE / "virtual-users.md", f"`{cls.__name__}`")) == signatures(cls)


def test_every_outcome_of_a_tick_is_explained() -> None:
    page = REFERENCE / "virtual-users.md"
    assert [codes_in(row[0])[0] for row in table_rows(page, "`tick`")] == list(Outcome)
    assert f"`{signature_text('tick', tick, skip=0)}`" in prose_of(page)


def test_every_status_of_an_approval_is_explained() -> None:
    page = section_of(REFERENCE / "agents.md", "Approvals", level=3)
    explained = [codes_in(line)[0] for line in page.splitlines() if line.startswith("| `")]
    assert explained == [status.value for status in ApprovalStatus]


def test_what_a_provider_of_keys_must_have_is_documented() -> None:
    assert documented_signatures(section_of(REFERENCE / "secrets.md", "Key providers")) == signatures(SettingsKeys)
    assert f"`{signature_text('secret', secret, skip=0)}`" in prose_of(REFERENCE / "secrets.md")


@pytest.mark.parametrize(("cls", "name"), [(WorkflowRunHandle, "handle.md"), (Flow, "flow.md")])
def test_every_method_and_property_of_a_flow_or_handle_is_documented(cls: type, name: str) -> None:
    text = prose_of(REFERENCE / name)
    assert documented_signatures(text) == signatures(cls)
    assert set(public_properties(cls)) <= set(codes_in(text))


def test_start_and_run_are_documented() -> None:
    assert documented_signatures(section_of(DEFINITION, "`start` and `run`", level=3)) == signatures(WorkflowDefinition)


def test_what_a_graph_offers_is_documented() -> None:
    page = REFERENCE / "graphs.md"
    assert documented_signatures(section_of(page, "`graph`")) == signatures(GraphDefinition)
    for of in (graph, node):
        assert f"`{signature_text(of.__name__, of, skip=0)}`" in section_of(page, f"`{of.__name__}`")
    for record in (GraphView, NodeView, EdgeView):
        row = next(row for row in table_rows(page, "How far a run is") if codes_in(row[0]) == [record.__name__])
        assert {field.name for field in fields(record)} <= set(codes_in(row[1]))


def test_the_options_of_the_decorators_are_documented() -> None:
    options = signature_text("@function", FunctionDefinition.__init__, skip=2)
    assert f"`{options}`" in section_of(DEFINITION, "`@function`")
    options = signature_text("@workflow", WorkflowDefinition.__init__, skip=2)
    assert f"`{options}`" in section_of(DEFINITION, "`@workflow`")
    for decorator, definition, first in (
        (function, FunctionDefinition, "func"),
        (workflow, WorkflowDefinition, "body"),
    ):
        assert inspect.signature(decorator).parameters.keys() == {first, "options"}
        rows = [codes_in(row[0])[0] for row in table_rows(DEFINITION, f"`@{decorator.__name__}`")]
        assert rows == [name for name in inspect.signature(definition).parameters if name != first]
    rows = [codes_in(row[0])[0] for row in table_rows(DEFINITION, "`Limits`")]
    assert rows == [field.name for field in fields(Limits)]
    kinds = [codes_in(row[0])[0] for row in table_rows(LIMITS_GUIDE, "See what a run waits for")]
    assert kinds == list(waits.KINDS)


def test_what_a_step_knows_of_itself_is_documented() -> None:
    rows = [codes_in(row[0])[0] for row in table_rows(DEFINITION, "`current_step`")]
    assert rows == [field.name for field in fields(StepContext) if not field.name.startswith("_")]


def test_every_spelling_of_a_unit_is_documented() -> None:
    rows = table_rows(DEFINITION, "Durations")
    for _name, spellings in rows:
        assert len({to_milliseconds(f"1{unit}") for unit in codes_in(spellings)}) == 1
    from pikku_storage.durations import _UNITS

    assert {unit for _name, spellings in rows for unit in codes_in(spellings)} == set(_UNITS)


def test_every_record_is_documented_with_its_fields() -> None:
    for row in table_rows(REFERENCE / "services.md", "Records"):
        name = codes_in(row[0])[0]
        record = getattr(records, name, None) or getattr(timeline, name)
        listed, _, properties = row[1].partition("; properties ")
        assert codes_in(listed) == [field.name for field in fields(record)], name
        assert codes_in(properties) == public_properties(record), name


def test_tasks_are_documented_with_their_options() -> None:
    page = REFERENCE / "celery.md"
    own = [value for value in vars(tasks).values() if isinstance(value, Task)]
    modules = (agent_tasks, webhook_tasks, deployment_tasks, channel_tasks)
    others = [value for of in modules for value in vars(of).values() if isinstance(value, Task)]
    assert [codes_in(row[0])[0] for row in table_rows(page, "Tasks")] == [task.name for task in (*own, *others)]
    table = prose_of(page).split("| option of the tasks")[1]
    options = re.findall(r"^\| `(\w+)` \| `?([\w\"]+)`? \|", table, re.MULTILINE)
    assert len(options) > 3
    for name, value in options:
        assert {getattr(task, name) for task in own} == {ast.literal_eval(value)}, name


def test_what_configure_adds_is_documented() -> None:
    text = prose_of(REFERENCE / "celery.md")
    assert f"`{RELAY_ENTRY}`" in text
    assert f"expires after {RELAY_EXPIRES} s" in text
    for name, value in SENDING_LIMITS.items():
        assert f"`{name}` {value}" in text


# -- commands ----------------------------------------------------------------------------------------------------------


def test_every_command_is_documented_with_its_options() -> None:
    page = REFERENCE / "commands.md"
    folders = (ROOT / "pikku_storage").glob("*/management/commands/[a-z]*.py")
    names = {path.stem: f"pikku_storage.{path.parents[2].name}" for path in folders}
    assert sorted(code_headings(page)) == sorted(names)
    for name, app in names.items():
        command = load_command_class(app, name)
        bare = {action.dest for action in BaseCommand().create_parser("manage.py", name)._actions}
        parser = command.create_parser("manage.py", name)
        expected = [
            action.option_strings[0]
            if action.option_strings
            else f"{action.metavar}{' …' if action.nargs in ('*', '+') else ''}"
            for action in parser._actions
            if action.dest not in bare
        ]
        documented = [code for row in table_rows(page, f"`{name}`") for code in codes_in(row[0])]
        assert sorted(documented) == sorted(expected)


def test_every_rule_of_check_storage_is_documented() -> None:
    documented = [codes_in(row[0])[0] for row in table_rows(REFERENCE / "commands.md", "Rules")]
    source = inspect.getsource(invariants)
    rules = re.findall(r'(?:violation\(|yield )"([a-z-]+)",', source)
    assert len(rules) > 10
    assert documented == rules


# -- testing -----------------------------------------------------------------------------------------------------------

TESTING = REFERENCE / "testing.md"


def test_every_fixture_and_option_of_the_plugin_is_documented() -> None:
    kind = type(plugin.clock)
    fixtures = {name for name, value in vars(plugin).items() if isinstance(value, kind) and not name.startswith("_")}
    assert {codes_in(row[0])[0] for row in table_rows(TESTING, "The pytest plugin")} == fixtures == plugin.FIXTURES
    assert f"| `{testing.UPDATE_OPTION}` |" in prose_of(TESTING)


def test_every_public_name_for_tests_is_documented() -> None:
    text = prose_of(TESTING)
    functions = [name for name in testing.__all__ if inspect.isfunction(getattr(testing, name))]
    assert sorted(
        documented_signatures(section_of(TESTING, "Context managers") + section_of(TESTING, "Histories"))
    ) == [signature_text(name, getattr(testing, name), skip=0) for name in functions]
    for name in set(testing.__all__) - set(functions):
        assert f"`{name}`" in text


def test_what_a_clock_a_fake_and_a_driver_have_is_documented() -> None:
    clock = documented_signatures(section_of(TESTING, "`FrozenClock`"))
    # `now` and `sleep` are what the engine calls.
    assert clock == ["now()", *[text for text in signatures(testing.FrozenClock) if text.startswith("advance")]]
    fake = signature_text("fake_function", testing.FakeFunctions.__call__)
    assert f"`{fake}`" in section_of(TESTING, "`FakeFunctions`")
    waiting = re.findall(r"^\| `(\w+)` \|", section_of(TESTING, "`RunUntilIdle`"), re.MULTILINE)
    assert waiting == [field.name for field in fields(testing.Waiting)]


# -- what is tested ----------------------------------------------------------------------------------------------------


def test_every_kind_of_tests_is_listed() -> None:
    listed = [codes_in(row[0])[0] for row in table_rows(REFERENCE / "tested-on.md", "Kinds of tests")]
    folders = {f"tests/{path.parent.name}" for path in (ROOT / "tests").glob("*/test_*.py")}
    assert sorted(listed) == sorted(folders)


ROWS = {
    "SQLite": "sqlite",
    "SQLite, with django-unfold over the admin": "sqlite-unfold",
    "PostgreSQL": "postgresql",
    "MariaDB": "mariadb",
    "MongoDB for everything": "mongodb",
    "MongoDB for the package's tables, SQLite for the rest": "mongodb-beside-sqlite",
}
"""What the table calls the databases of the script."""


def test_what_runs_on_which_database_is_what_the_script_of_ci_says() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    legs = re.findall(r"^\s*(?:aside )?leg (\S+) (\S+) ?(.*)$", script, re.MULTILINE)
    said = {
        (database, column): codes_in(row[column])
        for row in table_rows(REFERENCE / "tested-on.md", "What is tested on what")
        if (database := ROWS.get(row[0]))
        for column in (1, 2)
        if row[column]
    }
    assert {row[0] for row in table_rows(REFERENCE / "tested-on.md", "What is tested on what")} >= set(ROWS)
    run: dict[tuple[str, int], list[str]] = {}
    for venv, database, tests in legs:
        run.setdefault((database, 1 if venv == ".venv" else 2), []).extend(re.findall(r"tests/[\w/.]+", tests))
    assert said == run


def test_every_supported_version_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = {row[0]: row[1] for row in table_rows(ROOT / "README.md", "Supported versions")}
    for framework in ("Python", "Django"):
        versions = re.findall(rf":: {framework} :: (\d+\.\d+)", "\n".join(project["classifiers"]))
        assert re.findall(r"\d+\.\d+", rows[framework]) == versions
