"""The rooms, and who hears what in them."""

from __future__ import annotations

from pikku_storage.channels.asgi import ChannelEndpoint, Connection
from pikku_storage.exceptions import ForbiddenError
from pikku_storage.json import Json

ROOMS = ("lobby", "warehouse", "kitchen")
LONGEST_TEXT = 1000


def topic_of(room: str) -> str:
    """What is said in a room."""
    return f"room:{room}"


def inbox_of(user_id: str) -> str:
    """What is said to one person. Nobody subscribes to it by name: each connection hears of its own user's."""
    return f"user:{user_id}"


def said(author: str, text: Json) -> Json:
    """What is published of a text. Raises `ForbiddenError` for what is none."""
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_TEXT:
        raise ForbiddenError(f"A text of 1 to {LONGEST_TEXT} characters")
    # The author is whose session it is, whatever the client says.
    return {"author": author, "text": text}


class RoomEndpoint(ChannelEndpoint):
    """`/live/socket/`."""

    channel_name = "rooms"

    async def connected(self, connection: Connection) -> None:
        """Everybody has an inbox."""
        if connection.user_id is not None:
            await self.subscribe(connection, inbox_of(connection.user_id))

    async def allow_subscribe(self, connection: Connection, topic: str) -> None:
        """Any room that there is."""
        if topic not in map(topic_of, ROOMS):
            raise ForbiddenError("There is no such room")

    async def allow_publish(self, connection: Connection, topic: str, data: Json) -> Json:
        """Into a room that one is in."""
        await self.allow_subscribe(connection, topic)
        if topic not in connection.topics:
            raise ForbiddenError("Enter the room first")
        return said(connection.user.get_username(), data)
