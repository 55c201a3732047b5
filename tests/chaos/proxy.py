"""A TCP proxy that makes a good connection a bad one: `python -m tests.chaos.proxy --help`.

It writes the port that it listens on. Then it obeys lines on its standard input: `cut` ends all connections, `hold 2.5`
lets nothing through for so many seconds, `end` ends the proxy.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys


class Proxy:
    """Delays each piece by up to `delay` seconds, and cuts the connection instead with the probability `cuts`."""

    def __init__(self, host: str, port: int, *, delay: float, cuts: float, seed: int) -> None:
        self.host = host
        self.port = port
        self.delay = delay
        self.cuts = cuts
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.open = asyncio.Event()
        self.connections: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Listen, and obey until the end."""
        self.open.set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the answer
        while line := await asyncio.to_thread(sys.stdin.readline):
            match line.split():
                case ["cut"]:
                    self._cut()
                case ["hold", seconds]:
                    self.open.clear()
                    await asyncio.sleep(float(seconds))
                    self.open.set()
                case _:
                    break
        server.close()
        self._cut()

    def _cut(self) -> None:
        for connection in self.connections:
            connection.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self.connections.add(connection)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            behind_reader, behind_writer = await asyncio.open_connection(self.host, self.port)
            try:
                await self._both_ways(reader, behind_writer, behind_reader, writer)
            finally:
                behind_writer.transport.abort()
        writer.transport.abort()
        self.connections.discard(connection)

    async def _both_ways(
        self,
        reader: asyncio.StreamReader,
        behind_writer: asyncio.StreamWriter,
        behind_reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        ways = [
            asyncio.ensure_future(self._pump(reader, behind_writer)),
            asyncio.ensure_future(self._pump(behind_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            await self.open.wait()
            if self.delay:
                await asyncio.sleep(self.chance.uniform(0, self.delay))
            if self.chance.random() < self.cuts:
                return
            writer.write(piece)
            await writer.drain()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="of the server behind it")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--cuts", type=float, default=0.0)
    parser.add_argument("--seed", type=int, required=True)
    options = vars(parser.parse_args())
    asyncio.run(Proxy(options.pop("host"), options.pop("port"), **options).serve())


if __name__ == "__main__":
    main()
