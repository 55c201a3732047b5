"""Taking a key version out of use.

It is marked first, so that nobody writes under it any more, not even a process with old settings; then every table is
asked whether it needs it. Its salt stays: without it a backup could not be read, and it is no secret.
"""

from __future__ import annotations

from collections.abc import Sequence

from pikku_storage.auditing import AuditEvent, record
from pikku_storage.db import engine
from pikku_storage.exceptions import KeyNotAvailableError
from pikku_storage.secrets.keyring import Keyring
from pikku_storage.secrets.rotation import SealedTable


def retire(version: int, tables: Sequence[SealedTable]) -> dict[str, int]:
    """Retire a key version, unless rows need it: then it stays in use, and the answer says how many in which table.

    Raises `KeyNotAvailableError` for a version that is current, or that never was.
    """
    keyrings = {table.keyring.purpose: table.keyring for table in tables}.values()
    if any(version == keyring.current_version for keyring in keyrings):
        raise KeyNotAvailableError(version, "it is the current one, and cannot be retired")
    if not any(keyring.knows(version) for keyring in keyrings):
        raise KeyNotAvailableError(version, "there is no such version")
    marked = [keyring for keyring in keyrings if _mark(keyring, version)]
    needed = {table.label: count for table in tables if (count := table.count(version=version))}
    if needed:
        for keyring in marked:
            keyring.salts.reinstate(version)
    event = AuditEvent(
        type="secret.key.retired",
        outcome="denied" if needed else "success",
        wire_type="secrets",
        metadata={"keyVersion": version, "needed": needed},
    )
    record(event)
    return needed


def _mark(keyring: Keyring, version: int) -> bool:
    return keyring.salts.retire(version, at=engine(keyring.using).now())
