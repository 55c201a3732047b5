"""Ways for messages to go wrong, named by `PIKKU_STORAGE["DISPATCHER"]`."""

import random
from collections.abc import Iterable

from pikku_storage.workflows.dispatch import CeleryDispatcher, Message


class EachTwice(CeleryDispatcher):
    """Every message arrives twice."""

    def send(self, messages: Iterable[Message]) -> None:
        """Send it twice."""
        super().send([copy for message in messages for copy in (message, message)])


class AThirdLost(CeleryDispatcher):
    """A third of the messages never arrives, and nobody is told."""

    def send(self, messages: Iterable[Message]) -> None:
        """Send most of them."""
        super().send([message for message in messages if random.random() > 1 / 3])  # noqa: S311 - no secret
