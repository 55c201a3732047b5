"""The Celery application: `celery -A example_project worker` and `celery -A example_project beat`."""

import os

from celery import Celery

from pikku_storage.workflows.routing import configure

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

app = Celery("example_project")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
configure(app)
