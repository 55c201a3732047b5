"""The Celery application of our own workers: `celery -A benchmarks.project.celery worker`."""

import os

from celery import Celery
from django.conf import settings

from pikku_storage.workflows.routing import configure

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.project.settings")

app = Celery("benchmarks")
app.config_from_object("django.conf:settings", namespace="CELERY")
configure(app)
app.autodiscover_tasks()
# Set last, because Celery lets `add_defaults` win over the settings; the keys of one run must not be another's.
app.conf.broker_transport_options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
