"""The embedded broker: messages as files."""

import threading
from pathlib import Path
from queue import Empty

import pytest
from kombu import Connection
from kombu.transport.virtual import Channel

from example_project.broker import transport_options


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    return open_channel(tmp_path)


def open_channel(folder: Path) -> Channel:
    connection = Connection(
        "filesystem://",
        transport="example_project.broker:Transport",
        transport_options=transport_options(folder),
    )
    channel = connection.channel()
    assert isinstance(channel, Channel)
    return channel


def test_messages_come_in_order_and_leave_no_file(channel: Channel, tmp_path: Path) -> None:
    for number in range(20):
        channel._put("pikku", {"number": number})

    assert [channel._get("pikku")["number"] for _ in range(20)] == list(range(20))
    with pytest.raises(Empty):
        channel._get("pikku")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_queues_are_told_apart_when_one_name_ends_like_another(channel: Channel) -> None:
    channel._put("other.pikku", {})

    with pytest.raises(Empty):
        channel._get("pikku")
    assert channel._get("other.pikku") == {}


def test_racing_readers_and_writers_see_each_message_once_and_whole(tmp_path: Path) -> None:
    """Kombu's own transport gives a reader an empty file now and then, which ends the worker."""
    total = 600
    seen: list[int] = []
    errors: list[Exception] = []

    def write(writer: int) -> None:
        channel = open_channel(tmp_path)
        for number in range(total // 2):
            channel._put("pikku", {"number": writer * 1000 + number, "ballast": "x" * 5000})

    def read() -> None:
        channel = open_channel(tmp_path)
        while len(seen) < total and not errors and not stop.is_set():
            try:
                seen.append(channel._get("pikku")["number"])
            except Empty:
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                errors.append(error)

    stop = threading.Event()
    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    for thread in readers:
        thread.join(timeout=20)
    stop.set()

    assert errors == []
    assert len(seen) == len(set(seen)) == total
