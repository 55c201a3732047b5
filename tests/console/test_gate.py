"""Every address of the console, for every kind of caller (design of the console: who sees what).

The addresses are found by introspection: a new one without a line in `tests/console/rooms` fails, and so does one that
answers somebody whom the table does not let in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import URLPattern, reverse

from pikku_storage.access.declarations import declarations
from pikku_storage.access.service import ScopeService
from pikku_storage.conf import APP_LABELS
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowVersion
from tests.console.conftest import client_of, staff_with
from tests.console.rooms import Room, Rows, all_rooms
from tests.console.stories import failed_order, now

pytestmark = pytest.mark.django_db

ROOMS = all_rooms()
SCOPES = sorted(
    name
    for name in declarations.scopes
    if name.startswith("admin:") and not any(other.startswith(f"{name}:") for other in declarations.scopes)
)
"""Each scope that has none beneath it."""
EVERYTHING = ("admin", "admin:*", "*")


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a model's pages."""

    name: str
    model: str
    app: str
    converters: Mapping[str, Any]

    @property
    def is_list(self) -> bool:
        return "object_id" not in self.converters

    @property
    def room(self) -> Room:
        return ROOMS[self.app.removeprefix(APP_LABELS)]

    def url(self, rows: Mapping[str, Rows], *, object_id: str | None = None) -> str:
        kwargs = dict(self.room.params.get(self.name, {}))
        kwargs = {key: quote(rows[value].own) if value in rows else value for key, value in kwargs.items()}
        if not self.is_list:
            kwargs["object_id"] = quote(rows[self.model].own if object_id is None else object_id)
        return reverse(f"admin:{self.name}", kwargs=kwargs)

    def answer_to(self, *scopes: str, is_own: bool = False) -> int:
        """The table: any verb of the area lets in, unless the address needs one of them. What is owned is seen by its
        owner, who may do nothing that a verb is needed for; everybody on the staff has a list of what is theirs."""
        area, needed = self.room.areas.get(self.model, self.room.area), self.room.needs.get(self.name)
        held = {verb for verb in area.verbs if {*EVERYTHING, area.named(verb)} & {*scopes}}
        if held:
            return 200 if needed is None or needed in held else 403
        if self.room.owned and (is_own or self.is_list):
            return 200 if needed is None else 403
        return 403 if self.is_list else 404


def addresses() -> Iterator[Address]:
    for model, pages in admin.site._registry.items():
        if not type(pages).__module__.startswith("console."):
            continue
        for pattern in pages.get_urls():
            assert isinstance(pattern, URLPattern)
            assert pattern.name is not None, f"{pattern} of {model} has no name, so nothing tests it"
            yield Address(pattern.name, str(model._meta.model_name), model._meta.app_label, pattern.pattern.converters)


ADDRESSES = list(addresses())
each_address = pytest.mark.parametrize("address", ADDRESSES, ids=[address.name for address in ADDRESSES])
each_page = pytest.mark.parametrize(
    "address",
    [address for address in ADDRESSES if not address.is_list],
    ids=[address.name for address in ADDRESSES if not address.is_list],
)


def test_every_room_is_known() -> None:
    assert {address.app.removeprefix(APP_LABELS) for address in ADDRESSES} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_who_gets_what(room: str) -> None:
    owner = User.objects.create_user("owner", is_staff=True)
    rows = ROOMS[room].make(owner)
    callers: list[tuple[str, User, tuple[str, ...]]] = [
        (scope, staff_with(scope, name=f"holds {scope}"), (scope,)) for scope in (*EVERYTHING, *SCOPES)
    ]
    callers += [
        ("superuser", User.objects.create_superuser("root"), ("*",)),
        ("staff", User.objects.create_user("clerk", is_staff=True), ()),
        ("owner", owner, ()),
    ]
    strangers = [Client(), client_of(staff_with("admin", name="member", is_staff=False))]
    wrong = []
    for address in (address for address in ADDRESSES if address.room is ROOMS[room]):
        url = address.url(rows)
        # Nobody and people who are no staff are asked to log in, whatever they hold.
        for client in strangers:
            response = client.get(url)
            assert (response.status_code, response.headers["Location"][:13]) == (302, "/admin/login/")
        for name, user, scopes in callers:
            expected = address.answer_to(*scopes, is_own=user is owner)
            if (answer := client_of(user).get(url).status_code) != expected:
                wrong.append(f"{address.name} answers {answer}, not {expected}, to {name}")
    assert wrong == []


@each_page
def test_what_is_not_there_and_what_is_not_yours_answer_alike(address: Address) -> None:
    owner = User.objects.create_user("owner", is_staff=True)
    rows = address.room.make(owner)
    existing = rows[address.model].foreign or rows[address.model].own
    clerk = client_of(owner if address.room.owned else staff_with(name="clerk"))
    admin_client = client_of(staff_with("admin", name="holds admin"))

    forbidden = clerk.get(address.url(rows, object_id=existing))
    missing = clerk.get(address.url(rows, object_id="no-such-id"))
    assert (forbidden.status_code, missing.status_code) == (404, 404)
    assert forbidden.content == missing.content
    assert admin_client.get(address.url(rows, object_id="no-such-id")).status_code == address.room.misses.get(
        address.name, 404
    )
    assert admin_client.get(address.url(rows, object_id=existing)).status_code == 200


@each_address
def test_djangos_permissions_are_none_of_ours(address: Address) -> None:
    """Whoever has every permission of Django and no scope sees what one sees without any."""
    owner = User.objects.create_user("owner", is_staff=True)
    rows = address.room.make(owner)
    clerk = User.objects.create_user("clerk", is_staff=True)
    without = client_of(clerk).get(address.url(rows)).status_code
    clerk.user_permissions.set(Permission.objects.all())
    assert client_of(User.objects.get(pk=clerk.pk)).get(address.url(rows)).status_code == without


@each_address
def test_djangos_permissions_on_top_of_the_scope(address: Address, settings: Any) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CONSOLE_MODEL_PERMISSIONS": True}
    user = staff_with("admin", name="clerk")
    rows = address.room.make(User.objects.create_user("owner", is_staff=True))
    url = address.url(rows)
    assert client_of(user).get(url).status_code == (403 if address.is_list else 404)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label=address.app))
    assert client_of(User.objects.get(pk=user.pk)).get(url).status_code == 200


@pytest.mark.parametrize("address", [a for a in ADDRESSES if a.app == "pikku_workflows"], ids=lambda a: a.name)
def test_engine_rows_cannot_be_posted(address: Address) -> None:
    rows = address.room.make(User.objects.create_user("owner", is_staff=True))
    counted = (WorkflowRun, WorkflowStep, WorkflowVersion)
    before = [model._default_manager.count() for model in counted]
    # An operation's page takes a reason; who may only look cannot give one.
    caller = staff_with("admin:workflows:read" if address.name.endswith("_operation") else "admin", name="caller")
    client_of(caller).post(address.url(rows), {"status": "completed", "_save": "1"})
    assert before == [model._default_manager.count() for model in counted]
    assert WorkflowRun.objects.get().status == "failed"


@pytest.mark.parametrize("tail", ["add/", "{id}/delete/", "{id}/history/", "{id}/"])
def test_the_admins_own_forms_are_gone(tail: str, superuser: User) -> None:
    run_id = failed_order(now()).tell()
    url = f"/admin/pikku_workflows/workflowrun/{tail.format(id=run_id)}"
    assert client_of(superuser).get(url).status_code == 404


def test_a_step_of_another_run_is_not_found(superuser: User) -> None:
    story = failed_order(now())
    story.tell()
    other = failed_order(now()).tell()
    client = client_of(superuser)
    for view, *more in (("step",), ("step_payload", "input")):
        url = reverse(f"admin:pikku_workflows_workflowrun_{view}", args=[other, story.steps[0].pk, *more])
        assert client.get(url).status_code == 404


@pytest.mark.parametrize("part", ["wire", "pass_token", "claim_token", "id"])
def test_only_payloads_can_be_read_as_payloads(part: str, superuser: User) -> None:
    story = failed_order(now())
    run, step = story.tell(), story.steps[0].pk
    client = client_of(superuser)
    assert client.get(f"/admin/pikku_workflows/workflowrun/{run}/payload/{part}/").status_code == 404
    assert client.get(f"/admin/pikku_workflows/workflowrun/{run}/steps/{step}/{part}/").status_code == 404


def test_the_index_shows_only_what_one_may_see(clerk: User, operator: User) -> None:
    assert "workflowrun" not in client_of(clerk).get("/admin/").content.decode()
    assert "workflowrun" in client_of(operator).get("/admin/").content.decode()


def test_a_scope_that_is_taken_away_counts_at_once(operator: User) -> None:
    run_id = failed_order(now()).tell()
    client = client_of(operator)
    url = f"/admin/pikku_workflows/workflowrun/{quote(run_id)}/change/"
    assert client.get(url).status_code == 200
    ScopeService().remove_scope_from_user(operator, "admin:workflows:read")
    assert client.get(url).status_code == 404
