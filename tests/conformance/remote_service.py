"""A service of its own process, for tests of calls between processes: `python remote_service.py <name> <other>`.

It announces itself in the database that `DATABASE_URL` names, serves functions on a free port of the loopback, and ends
when its standard input does.
"""

from __future__ import annotations

import sys
import threading
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
from django.conf import settings
from django.urls import include, path

REMOTE: dict[str, Any] = {
    "REMOTE_SECRET": "remote-secret-0123456789-0123456789",
    "JWT_SECRETS": {"1": "jwt-secret-0123456789-0123456789-abc"},
    "DEPLOYMENT_HEARTBEAT": "200ms",
}
urlpatterns: list[Any] = []


class Quiet(WSGIRequestHandler):
    """Says nothing of each request."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def main(name: str, other: str) -> None:
    """Serve until the standard input ends."""
    settings.ROOT_URLCONF = __name__
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, **REMOTE}
    django.setup()

    from django.core.wsgi import get_wsgi_application

    from pikku_storage.access.acting import current_user_id
    from pikku_storage.deployments.announcing import announce, withdraw
    from pikku_storage.deployments.service import DeploymentService
    from pikku_storage.deployments.sessions import current_session
    from pikku_storage.workflows import function

    @function(name=f"{name}/greet", remote=True)
    async def greet(who: str) -> dict[str, Any]:
        return {"text": f"Hello {who}, this is {name}", "user": current_user_id()}

    @function(name=f"{name}/ask", remote=True)
    def ask(who: str) -> Any:
        return DeploymentService().invoke(f"{other}/greet", {"who": who}, session=current_session())

    urlpatterns.append(path("", include("pikku_storage.deployments.urls")))
    application = get_wsgi_application()
    server = make_server("127.0.0.1", 0, application, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    announce(f"http://127.0.0.1:{server.server_port}")
    sys.stdin.read()
    withdraw()


if __name__ == "__main__":
    main(*sys.argv[1:])
