"""Real WebSockets, held by two real server processes: events cross between them, and a killed one leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.db import router
from django.test import Client
from pytest_django.fixtures import Settings
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from pikku_storage.channels.models import Channel, ChannelSubscription
from pikku_storage.channels.service import EventHubStore
from tests.conformance.support import connection
from tests.integration.conftest import FAILED_CALL

pytestmark = pytest.mark.django_db(transaction=True)
LEASE = "4s"


class Servers:
    """Two processes of a web server, each on a port of its own that nobody else can have."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.running: list[subprocess.Popen[bytes]] = []
        self.ports: list[int] = []
        self._folder = folder
        for number in range(2):
            listening = socket.create_server(("127.0.0.1", 0))
            self.ports.append(listening.getsockname()[1])
            with listening, self.log_of(number).open("wb") as output:
                # It takes over a socket that listens already: clients wait until it is ready.
                fd = str(listening.fileno())
                arguments = ["--fd", fd, "--lifespan", "on", "--no-access-log", "--timeout-graceful-shutdown", "3"]
                self.running.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "uvicorn", "example_project.asgi:application", *arguments],
                        env=env,
                        pass_fds=[listening.fileno()],
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )

    def log_of(self, number: int) -> Path:
        """What that process writes."""
        return self._folder / f"server-{number}.log"

    def end(self, number: int, how: signal.Signals) -> None:
        """Send it a signal, and wait until it is gone."""
        self.running[number].send_signal(how)
        self.running[number].wait(15)

    def stop_all(self) -> None:
        """Nothing is left behind."""
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait(10)


@pytest.fixture(params=["notify", "redis", "polling"])
def servers(
    request: pytest.FixtureRequest, process_env: dict[str, str], settings: Settings, tmp_path: Path
) -> Iterator[Servers]:
    """Servers on each transport."""
    if request.param == "notify" and connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL for the tests' database: set DATABASE_URL")
    channels = {
        "CHANNEL_LEASE": LEASE,
        "CHANNEL_TRANSPORT": request.param,
        "CHANNEL_NAMESPACE": f"test_sockets_{os.getpid()}",
        "CHANNEL_POLL_INTERVAL": "50ms",
    }
    if request.param == "redis":
        channels["CHANNEL_REDIS_URL"] = request.getfixturevalue("redis_url")
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, **channels}
    made = Servers(
        {
            **process_env,
            "DJANGO_SETTINGS_MODULE": "tests.integration.settings_live",
            "PIKKU_TEST_CHANNELS": json.dumps(channels),
        },
        tmp_path,
    )
    yield made
    made.stop_all()
    if request.node.stash.get(FAILED_CALL, False):
        sys.stderr.write("\n".join(path.read_text(errors="replace") for path in sorted(tmp_path.glob("*.log"))))


class Person:
    """Somebody in a browser."""

    def __init__(self, name: str) -> None:
        browser = Client()
        browser.force_login(User.objects.create_user(name))
        self.name = name
        self.cookie = f"sessionid={browser.cookies['sessionid'].value}"

    def connect(self, port: int, **headers: str) -> Any:
        """A socket."""
        headers = {"Cookie": self.cookie, "Origin": f"http://127.0.0.1:{port}", **headers}
        uri = f"ws://127.0.0.1:{port}/live/socket/"
        return connect(uri, additional_headers=headers, open_timeout=30, proxy=None)

    def get(self, port: int, path: str) -> Any:
        """A page, as JSON."""
        request = Request(f"http://127.0.0.1:{port}{path}", headers={"Cookie": self.cookie})
        with urlopen(request, timeout=30) as response:  # noqa: S310 - ours
            return json.load(response)


async def heard(client: ClientConnection) -> dict[str, Any]:
    """The next message."""
    async with asyncio.timeout(15):
        message: dict[str, Any] = json.loads(await client.recv())
        return message


async def asked(client: ClientConnection, **message: Any) -> dict[str, Any]:
    """What is answered to a message."""
    await client.send(json.dumps(message))
    return await heard(client)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.05)


@sync_to_async
def channel_ids() -> set[str]:
    """The channels that there are, and no subscription may be of any other."""
    found = set(Channel.everyones.values_list("channel_id", flat=True))
    subscribed = set(ChannelSubscription.everyones.values_list("channel_id", flat=True))
    return found | subscribed


def test_rooms_reach_across_processes_and_outlive_one_of_them(servers: Servers) -> None:
    """CN-08 across processes, and fault 21 with a real `kill -9`."""
    assert router.db_for_write(Channel)
    ada, eve = Person("ada"), Person("eve")
    async_to_sync(_talk)(servers, ada, eve)


async def _talk(servers: Servers, ada: Person, eve: Person) -> None:
    here, there = servers.ports
    async with AsyncExitStack() as stack:
        at_ada = await stack.enter_async_context(ada.connect(here))
        at_eve = await stack.enter_async_context(eve.connect(there))
        ids = [(await heard(client))["channelId"] for client in (at_ada, at_eve)]
        for client in (at_ada, at_eve):
            assert (await asked(client, type="subscribe", topic="room:lobby"))["type"] == "subscribed"

        # From one process to the other, and not back to who said it.
        assert await asked(at_ada, type="publish", topic="room:lobby", data="hello 🦀", id=7) == {
            "type": "published",
            "topic": "room:lobby",
            "id": 7,
        }
        event = {"type": "event", "topic": "room:lobby", "data": {"author": "ada", "text": "hello 🦀"}}
        assert await heard(at_eve) == event
        # From a third process, to both. What PostgreSQL cannot notify of travels in a row.
        large = "x" * 20_000
        await EventHubStore().apublish("room:lobby", None, large)
        assert [(await heard(client))["data"] for client in (at_ada, at_eve)] == [large, large]

        # Whose session it is decides.
        listed = await sync_to_async(eve.get, thread_sensitive=False)(there, "/live/channels/")
        assert [each["id"] for each in listed["channels"]] == ids[1:]
        with pytest.raises(InvalidStatus, match="HTTP 403"):
            await stack.enter_async_context(ada.connect(here, Cookie="sessionid=nobody's"))
        with pytest.raises(InvalidStatus, match="HTTP 403"):
            await stack.enter_async_context(ada.connect(here, Origin="https://evil.example"))

        # The process that holds Ada's socket dies without a word: her channel goes with its lease. Eve's stays, for
        # longer than hers.
        servers.end(0, signal.SIGKILL)
        with pytest.raises(ConnectionClosed):
            await heard(at_ada)
        assert await channel_ids() >= set(ids)

        async def swept() -> bool:
            return await channel_ids() == {ids[1]}

        await eventually(swept)
        await EventHubStore().apublish("room:lobby", None, "still here")
        assert (await heard(at_eve))["data"] == "still here"

        # One that is asked to end says goodbye, and leaves nothing to sweep.
        await sync_to_async(servers.end, thread_sensitive=False)(1, signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as closed:
            await heard(at_eve)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        assert await channel_ids() == set()
