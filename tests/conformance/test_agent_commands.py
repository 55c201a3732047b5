"""`export_agent_data`, `erase_agent_data`, `prune_threads`."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError

from pikku_storage.agents import personal
from pikku_storage.agents.models import AgentThread
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.auditing import AuditEvent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def storage() -> AgentStorageService:
    storage = AgentStorageService()
    for owner in ("ada", "ada:private", "eve"):
        storage.create_thread(owner, thread_id=f"of {owner}")
    return storage


def said(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def left() -> list[str]:
    return sorted(AgentThread.everyones.values_list("resource_id", flat=True))


def test_the_export_goes_to_a_file(storage: AgentStorageService, tmp_path: Path) -> None:
    file = tmp_path / "ada.json"
    storage.save_messages("of ada", [{"role": "user", "content": "🦀"}])
    assert said("export_agent_data", "ada", "--output", str(file)) == f"Written to {file}\n"
    assert "🦀" in file.read_text(encoding="utf-8")
    assert [thread["id"] for thread in json.loads(file.read_text(encoding="utf-8"))["threads"]] == [
        "of ada",
        "of ada:private",
    ]
    with pytest.raises(CommandError, match="No such file"):
        said("export_agent_data", "ada", "--output", str(tmp_path / "missing" / "ada.json"))


def test_many_threads_are_handed_out_page_by_page(
    storage: AgentStorageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(personal, "BATCH", 2)
    names = [f"t{number}" for number in range(5)]
    for name in names:
        storage.create_thread("max", thread_id=name)
    assert [thread["id"] for thread in json.loads(said("export_agent_data", "max"))["threads"]] == names
    assert storage.erase_user("max").threads == 5


def test_erasing_asks_first(
    storage: AgentStorageService, monkeypatch: pytest.MonkeyPatch, audited: list[AuditEvent]
) -> None:
    monkeypatch.setattr("builtins.input", lambda question: "yes")
    with pytest.raises(CommandError, match="Nothing was deleted"):
        said("erase_agent_data", "ada")
    assert left() == ["ada", "ada:private", "eve"]
    assert audited == []

    monkeypatch.setattr("builtins.input", lambda question: "ada")
    assert said("erase_agent_data", "ada", "--by", "dpo") == "ada: 2 threads and 0 working memories deleted\n"
    assert left() == ["eve"]
    assert [(event.type, event.actor.user_id) for event in audited] == [("agent.user.erased", "dpo")]
    assert said("erase_agent_data", "ada", "--noinput") == "ada: 0 threads and 0 working memories deleted\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["erase_agent_data", "a\x00b", "--noinput"], "NUL"),
        (["export_agent_data", ""], "1 to 255 characters"),
        (["export_agent_data", "ada", "--database", "nowhere"], "no database 'nowhere'"),
        (["erase_agent_data", "ada", "--noinput", "--database", "nowhere"], "no database 'nowhere'"),
        (["prune_threads", "--older-than", "1y", "--database", "nowhere"], "no database 'nowhere'"),
        (["prune_threads", "--older-than", "soon"], "Invalid duration"),
    ],
)
def test_arguments_that_make_no_sense(storage: AgentStorageService, arguments: list[str], problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        said(*arguments)
    assert left() == ["ada", "ada:private", "eve"]


def test_old_threads_are_pruned(storage: AgentStorageService) -> None:
    long_ago = storage._engine.now() - timedelta(days=91)
    for owner in ("ada", "eve"):
        storage.create_run(agent_name=f"agent-{owner}", thread_id=f"of {owner}", resource_id=owner)
        AgentThread.everyones.filter(pk=f"of {owner}").update(updated_at=long_ago)
    assert said("prune_threads", "--older-than", "90d", "--dry-run") == "2 threads would be deleted\n"
    assert len(left()) == 3
    assert said("prune_threads", "--older-than", "90d", "--agent", "agent-eve") == "1 threads deleted\n"
    assert left() == ["ada", "ada:private"]
    assert said("prune_threads", "--older-than", "90d") == "1 threads deleted\n"
    assert said("prune_threads", "--older-than", "90d") == "0 threads deleted\n"
    assert left() == ["ada:private"]


def test_a_thread_that_somebody_goes_on_with_meanwhile_stays(
    storage: AgentStorageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = storage._engine.now() - timedelta(days=91)
    AgentThread.everyones.update(updated_at=long_ago)
    from pikku_storage.agents import removal

    remove_thread = removal.remove_thread

    def slowly(using: str, thread_id: str) -> bool:
        storage.save_messages("of eve", [{"role": "user", "content": "still here"}])
        return remove_thread(using, thread_id)

    monkeypatch.setattr(removal, "remove_thread", slowly)
    assert storage.prune_threads("90d") == 2
    assert left() == ["eve"]


@pytest.mark.parametrize(
    "arguments", [["erase_agent_data", "ada", "--noinput"], ["prune_threads", "--older-than", "0s"]]
)
def test_a_database_that_fails_is_told(
    storage: AgentStorageService, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    def fail(*arguments: Any) -> bool:
        raise OperationalError("gone")

    monkeypatch.setattr("pikku_storage.agents.removal._remove_contents", fail)
    with pytest.raises(CommandError, match="The database failed: gone"):
        said(*arguments)
