"""`manage.py demo`: fulfils a few hundred orders with real workers, checks the books, and serves the admin."""

import fcntl
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, CommandParser, call_command
from rich.console import Console

from example_project.orders import books
from example_project.orders.demo import data, progress, report
from example_project.orders.demo.processes import ProcessDied, Processes
from example_project.orders.intake import ORDERS_FILE, read_catalogue, read_orders
from pikku_storage.conf import settings as pikku


class Command(BaseCommand):
    help = "Fulfil the orders of a data file with Celery workers, check the books, and serve the admin until Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="End after the table: 0 if all settled and the books balance."
        )
        parser.add_argument(
            "--keep", action="store_true", help="Go on with the orders of an earlier demo instead of starting anew."
        )
        parser.add_argument("--port", type=int, default=8000, help="Where the admin is served (default: 8000).")
        parser.add_argument(
            "--timeout", type=float, default=300, help="Seconds in which the runs must settle (default: 300)."
        )

    def handle(self, *args: Any, once: bool, keep: bool, port: int, timeout: float, **options: Any) -> None:
        if not once:
            _need_port(port)
        # SIGTERM ends a Python process without its clean-up; as an exception it goes through every `finally`.
        signal.signal(signal.SIGTERM, _terminate)
        console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
        try:
            with _only_demo():
                self._run(console, once=once, keep=keep, port=port, timeout=timeout)
        except KeyboardInterrupt:
            raise CommandError(
                "Interrupted. `make demo KEEP=1` goes on where this demo stopped.", returncode=128 + signal.SIGINT
            ) from None

    def _run(self, console: Console, *, once: bool, keep: bool, port: int, timeout: float) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        admin, operator = data.make_users()
        if not keep:
            data.forget_orders()
            _empty_embedded_broker()
        catalogue = read_catalogue()
        orders, rejected = read_orders(catalogue)
        data.load(catalogue, orders)
        report.print_rejected(console, ORDERS_FILE.name, rejected)
        console.print(
            f"Fulfilling {len(orders)} orders with two worker processes (logs in {settings.VAR_DIR / 'log'}).",
            highlight=False,
        )

        with Processes(
            app="example_project", queues=pikku.QUEUE, cwd=settings.BASE_DIR, var=settings.VAR_DIR, report=console.print
        ) as workers:
            start = time.monotonic()
            try:
                settled = progress.start_and_wait(operator, admin, console, seconds=timeout, watch=workers.watch)
            except ProcessDied as error:
                raise CommandError(str(error)) from error
            report.print_runs(console, seconds=time.monotonic() - start)
            discrepancies = books.check()
            report.print_books(console, discrepancies)
            report.print_schedules(console)
            if not settled:
                console.print(f"[bold red]Some runs did not settle within {timeout:.0f} seconds.[/]")
            if not once:
                self._serve(console, port)
        if once and (discrepancies or not settled):
            raise CommandError("The demo failed, see above.")

    def _serve(self, console: Console, port: int) -> None:
        console.print(
            f"\nThe admin is at [bold]http://127.0.0.1:{port}/admin/[/]: log in as admin / admin (may do everything) "
            "or ops / ops (may look). Ctrl-C ends the demo."
        )
        call_command("runserver", f"127.0.0.1:{port}", use_reloader=False)


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


@contextmanager
def _only_demo() -> Iterator[None]:
    """Two demos at once would share a database and empty each other's broker."""
    settings.VAR_DIR.mkdir(exist_ok=True)
    with (settings.VAR_DIR / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandError("Another demo is running; end it with Ctrl-C first.") from None
        yield


def _need_port(port: int) -> None:
    """Found out before the work is done; `runserver` would find out after it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandError(
                f"Port {port} cannot be used ({error.strerror}); choose another one: PORT=8001."
            ) from None


def _empty_embedded_broker() -> None:
    """Messages of runs that are gone would only be ignored, but slowly."""
    for folder in (settings.VAR_DIR / "broker").glob("*"):
        shutil.rmtree(folder)
        folder.mkdir()
