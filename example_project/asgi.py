"""The ASGI entry point for a web server: Django, and the WebSockets of the rooms."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

# Django is set up here, and what follows needs that.
django_application = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler  # noqa: E402

from example_project.live.rooms import RoomEndpoint  # noqa: E402
from pikku_storage.channels.asgi import WithChannels  # noqa: E402

if settings.DEBUG:
    # As `runserver` does. In production a web server in front has the files.
    django_application = ASGIStaticFilesHandler(django_application)

application = WithChannels(django_application, {"/live/socket/": RoomEndpoint()})
