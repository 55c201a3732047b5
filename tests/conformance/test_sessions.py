"""Sessions of users, kept as the TypeScript packages keep them."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from pikku_storage.access.models import UserSession
from pikku_storage.access.sessions import SessionStore
from pikku_storage.exceptions import PayloadError
from tests.conformance.support import connection

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.contract("SS-01", "SS-02", "SS-03", "SS-04", "SS-05")
def test_a_session_is_stored_whole(db: None, ticking: None) -> None:
    store = SessionStore()
    assert store.get("ada") is None
    first = {"userId": "ada", "zero": 0, "no": False, "none": None, "empty": "", "deep": {"list": [1, {"a": []}]}}
    store.set("ada", first)
    store.set(7, {})
    assert store.get("ada") == first
    assert store.get("7") == {}
    made = UserSession.objects.get(pk="ada")
    store.set("ada", {"userId": "ada", "theme": "dark"})
    assert store.get("ada") == {"userId": "ada", "theme": "dark"}
    changed = UserSession.objects.get(pk="ada")
    assert changed.created_at == made.created_at
    assert changed.updated_at > made.updated_at
    store.clear("ada")
    store.clear("ada")
    assert store.get("ada") is None
    assert store.get("7") == {}


def test_only_objects_are_sessions_and_async_code_has_them_too(db: None) -> None:
    store = SessionStore()
    for wrong in ("text", [1], None, {"at": object()}):
        with pytest.raises(PayloadError):
            store.set("ada", wrong)  # type: ignore[arg-type]
    for nobody in ("", "x" * 256):
        with pytest.raises(PayloadError):
            store.set(nobody, {})
    assert not UserSession.objects.exists()

    async def scenario() -> Any:
        await store.aset("ada", {"n": 1})
        found = await store.aget("ada")
        await store.aclear("ada")
        return [found, await store.aget("ada")]

    assert async_to_sync(scenario)() == [{"n": 1}, None]


@pytest.mark.skipif(connection.vendor != "mongodb", reason="about documents")
def test_a_document_is_named_as_the_typescript_packages_name_it(db: None) -> None:
    SessionStore().set("ada", {"userId": "ada", "nested": {"n": 1}})
    collection = connection.database["pikkuUserSessions"]
    document = collection.find_one({"_id": "ada"})
    assert set(document) == {"_id", "session", "createdAt", "updatedAt"}
    assert document["session"] == {"userId": "ada", "nested": {"n": 1}}
    collection.insert_one({**document, "_id": "theirs", "session": {"theirs": True}})
    assert SessionStore().get("theirs") == {"theirs": True}
