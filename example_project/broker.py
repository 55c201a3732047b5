"""The embedded broker of the demo: Celery messages as files in a folder, no server needed.

Kombu brings such a transport. Its writer creates a message's file under the final name and fills it afterwards, so a
reader in another process can take an empty file, which ends the worker. Here a message appears under its name only when
it is complete. For production use Redis or RabbitMQ: set CELERY_BROKER_URL.
"""

import os
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps, loads


class Channel(filesystem.Channel):
    """Kombu's file system channel, with messages that appear and are taken whole."""

    # Kombu's own base classes disagree about the name of the second parameter.
    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        folder = Path(self.data_folder_out)
        name = f"{time.time_ns():020d}_{uuid.uuid4().hex}"
        unfinished = folder / f"{name}.unfinished"
        unfinished.write_text(dumps(payload), encoding="utf-8")
        unfinished.rename(folder / f"{name}.{queue}.msg")

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        for name in sorted(os.listdir(self.data_folder_in)):
            if name.partition(".")[2] != f"{queue}.msg":
                continue
            taken = Path(self.processed_folder) / name
            try:
                # Only one of several readers wins a rename.
                (Path(self.data_folder_in) / name).rename(taken)
            except FileNotFoundError:
                continue
            message = loads(taken.read_text(encoding="utf-8"))
            taken.unlink()
            return message
        raise Empty


class Transport(filesystem.Transport):
    """Named by CELERY_BROKER_TRANSPORT where the broker is `filesystem://`."""

    Channel = Channel

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """There is no host, so nobody is warned that none was given."""
        return {"port": self.default_port}


def transport_options(folder: Path) -> dict[str, Any]:
    """CELERY_BROKER_TRANSPORT_OPTIONS for messages kept under `folder`, which is made if it is missing."""
    messages, control, taken = (folder / name for name in ("messages", "control", "taken"))
    for path in (messages, control, taken):
        path.mkdir(parents=True, exist_ok=True)
    return {
        "data_folder_in": str(messages),
        "data_folder_out": str(messages),
        "control_folder": str(control),
        "processed_folder": str(taken),
        "polling_interval": 0.02,
    }
