"""Who may reach what: every address, every caller, and runs that are theirs, somebody else's, or not there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from pikku_storage.workflows import urls
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.support import connection
from tests.http.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)

MISSING = "01990000-0000-7000-8000-000000000000"


@dataclass(frozen=True)
class Address:
    """One address, and what it takes."""

    method: str
    parts: tuple[str, ...]
    body: Any = None

    def ask(self, caller: Caller, name: str, run_id: str) -> Any:
        """Send the request that is right but for who sends it and for which run."""
        parts = [{"<name>": name, "<run_id>": run_id}.get(part, part) for part in self.parts]
        return caller.post(*parts, body=self.body) if self.method == "POST" else caller.get(*parts)


STARTING = {
    "start": Address("POST", ("<name>", "start")),
    "run": Address("POST", ("<name>", "run")),
}
READING = {
    "status": Address("GET", ("<name>", "status", "<run_id>")),
    "stream": Address("GET", ("<name>", "status", "<run_id>", "stream")),
    "stream-full": Address("GET", ("<name>", "status", "<run_id>", "stream", "full")),
}
ANSWERING = {
    "approve": Address("POST", ("<name>", "approve", "<run_id>"), body={"reason": "release", "decision": {"amount": 5}})
}
ADDRESSES = {**STARTING, **READING, **ANSWERING}


def _user(name: str, **options: Any) -> User:
    return User.objects.create_user(name, **options)


CALLERS: dict[str, Callable[[User], Caller]] = {
    "anonymous": lambda owner: Caller(),
    "owner": Caller,
    "stranger": lambda owner: Caller(_user("stranger")),
    "staff": lambda owner: Caller(_user("staff", is_staff=True)),
    "superuser": lambda owner: Caller(_user("root", is_staff=True, is_superuser=True)),
    "inactive": lambda owner: Caller(_user("gone", is_active=False)),
    "owner's program": lambda owner: Caller(owner, token=owner.username),
    "stranger's program": lambda owner: Caller(_user("stranger"), token="stranger"),
    "revoked program": lambda owner: Caller(token="revoked"),
}
REFUSED = {"anonymous": 401, "inactive": 401, "revoked program": 403}
OWNERS = {"owner", "owner's program"}


@pytest.fixture
def owner(db: Any) -> User:
    """Whose run it is."""
    return _user("ada")


@pytest.fixture
def run_id(owner: User, service: WorkflowService) -> str:
    """A run of the owner, which has ended."""
    handle = service.start_workflow("http.doubled", {}, owner=owner)
    service.orchestrate_workflow(handle.id)
    return handle.id


def test_the_table_has_every_address() -> None:
    assert {pattern.name for pattern in urls.urlpatterns} == set(ADDRESSES)
    assert {str(pattern.pattern).replace("<str:", "<") for pattern in urls.urlpatterns} == {
        "/".join(address.parts) for address in ADDRESSES.values()
    }


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("address", STARTING)
def test_who_may_start(address: str, caller: str, owner: User, inline: None) -> None:
    asker = CALLERS[caller](owner)
    before = WorkflowRun.objects.count()
    response = STARTING[address].ask(asker, "http.doubled", "")
    assert response.status_code == REFUSED.get(caller, 200)
    started = list(WorkflowRun.objects.values_list("owner_id", flat=True))[before:]
    assert started == ([] if caller in REFUSED else [asker.id])


@pytest.mark.contract("RA-05")
@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("address", READING)
def test_who_may_read(address: str, caller: str, owner: User, run_id: str) -> None:
    asker = CALLERS[caller](owner)
    response = READING[address].ask(asker, "http.doubled", run_id)
    assert response.status_code == REFUSED.get(caller, 200 if caller in OWNERS else 404)


@pytest.mark.contract("RA-05")
@pytest.mark.parametrize("caller", [name for name in CALLERS if name not in OWNERS])
@pytest.mark.parametrize("address", READING)
def test_a_foreign_run_looks_like_a_missing_one(address: str, caller: str, owner: User, run_id: str) -> None:
    asker = CALLERS[caller](owner)
    looks = []
    for asked in (run_id, MISSING):
        # The first request of a client reads more of its user than later ones.
        READING[address].ask(asker, "http.doubled", asked)
        with CaptureQueriesContext(connection) as seen:
            response = READING[address].ask(asker, "http.doubled", asked)
        text = response.content.decode().replace(asked, "<run_id>")
        headers = {name: value for name, value in response.headers.items() if name != "Date"}
        looks.append((response.status_code, text, headers, len(seen.captured_queries)))
    assert looks[0] == looks[1]


def test_what_a_missing_run_is_called(owner: User) -> None:
    response = Caller(owner).get("http.doubled", "status", MISSING)
    assert response.json() == {"error": {"name": "NoSuchRunError", "message": f"Run not found: {MISSING}"}}


@pytest.mark.parametrize("run_id", ["%00", "x" * 256, "%ED%A0%80", "' OR 1=1 --"])
@pytest.mark.parametrize("address", [*READING, *ANSWERING])
def test_an_id_that_cannot_be_is_a_missing_run(address: str, run_id: str, owner: User) -> None:
    assert ADDRESSES[address].ask(Caller(owner), "http.doubled", run_id).status_code == 404


@pytest.mark.contract("RA-06")
@pytest.mark.parametrize("address", READING)
def test_a_run_without_an_owner_can_be_read_by_whoever_is_signed_in(
    address: str, owner: User, service: WorkflowService
) -> None:
    handle = service.start_workflow("http.doubled", {})
    assert READING[address].ask(Caller(owner), "http.doubled", handle.id).status_code == 200
    assert READING[address].ask(Caller(), "http.doubled", handle.id).status_code == 401


@pytest.mark.parametrize("name", ["http.hidden", "http.no_such", "%00", "..%2f"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_workflow_that_is_not_served_looks_like_none(
    address: str, name: str, owner: User, service: WorkflowService
) -> None:
    run = service.start_workflow("http.hidden", {}, owner=owner)
    response = ADDRESSES[address].ask(Caller(owner), name, run.id)
    assert response.status_code == 404
    if name.startswith("http."):
        assert response.json() == {"error": {"name": "NotServedError", "message": f"Workflow not found: {name}"}}
    assert WorkflowRun.objects.count() == 1


@pytest.mark.parametrize("address", [*READING, *ANSWERING])
def test_a_run_of_another_workflow_is_a_missing_one(address: str, owner: User, run_id: str) -> None:
    assert ADDRESSES[address].ask(Caller(owner), "http.guarded", run_id).status_code == 404


def test_nobody_learns_without_signing_in_which_workflows_are_served() -> None:
    answers = {Caller().post(name, "start").content for name in ("http.doubled", "http.hidden", "http.no_such")}
    assert len(answers) == 1


def test_a_workflow_may_ask_for_a_permission(owner: User, inline: None) -> None:
    for address in STARTING.values():
        response = address.ask(Caller(owner), "http.guarded", "")
        assert (response.status_code, response.json()["error"]["name"]) == (403, "ForbiddenError")
    assert not WorkflowRun.objects.exists()
    owner.user_permissions.add(Permission.objects.get(codename="add_user", content_type__app_label="auth"))
    for address in STARTING.values():
        assert address.ask(Caller(owner), "http.guarded", "").status_code == 200


# -- CSRF --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [*STARTING, *ANSWERING])
def test_a_session_needs_the_csrf_token(address: str, owner: User) -> None:
    response = ADDRESSES[address].ask(Caller(owner, csrf=False), "http.doubled", MISSING)
    assert (response.status_code, response.json()["error"]["name"]) == (403, "CsrfError")
    assert not WorkflowRun.objects.exists()


def test_a_form_of_another_site_is_refused(owner: User) -> None:
    browser = Caller(owner, csrf=False)
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        response = browser.post_raw("http.doubled", "start", content=b'{"data":{}}', content_type=content_type)
        assert response.status_code == 403
    assert not WorkflowRun.objects.exists()


def test_a_form_with_the_token_is_no_json(owner: User) -> None:
    browser = Caller(owner)
    browser.headers.pop("X-CSRFToken")
    token = browser.client.cookies["csrftoken"].value
    content = f"csrfmiddlewaretoken={token}".encode()
    response = browser.post_raw(
        "http.doubled", "start", content=content, content_type="application/x-www-form-urlencoded"
    )
    assert (response.status_code, response.json()["error"]["name"]) == (415, "UnsupportedMediaTypeError")


def test_a_program_that_has_a_session_too_is_known_by_its_token(owner: User, service: WorkflowService) -> None:
    browser = Caller(_user("bob"), csrf=False)
    browser.headers["Authorization"] = f"Token {owner.username}"
    run_id = browser.post("http.doubled", "start").json()["runId"]
    assert service.get_run(run_id).owner_id == str(owner.pk)  # type: ignore[union-attr]


def test_a_project_that_asks_everybody_to_sign_in_sends_nobody_to_its_login_page(
    owner: User, settings: Settings
) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    assert Caller().post("http.doubled", "start").status_code == 401
    assert Caller(token=owner.username).post("http.doubled", "start").status_code == 200
