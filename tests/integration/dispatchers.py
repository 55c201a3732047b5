"""Ways for messages to go wrong, named by `PIKKU_STORAGE["DISPATCHER"]`."""

import os
import random
from collections.abc import Iterable

from pikku_storage.workflows.dispatch import CeleryDispatcher, Message


class EachTwice(CeleryDispatcher):
    """Every message arrives twice."""

    def send(self, messages: Iterable[Message]) -> None:
        """Send it twice."""
        super().send([copy for message in messages for copy in (message, message)])


class AThirdLost(CeleryDispatcher):
    """A third of the messages never arrives, and nobody is told. Which ones, PIKKU_TEST_SEED says."""

    def __init__(self) -> None:
        super().__init__()
        self._chance = random.Random(os.environ.get("PIKKU_TEST_SEED"))  # noqa: S311 - no secret

    def send(self, messages: Iterable[Message]) -> None:
        """Send most of them."""
        super().send([message for message in messages if self._chance.random() > 1 / 3])
