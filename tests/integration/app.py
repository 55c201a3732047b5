"""The Celery app of those workers: `celery -A tests.integration.app worker`."""

import django

django.setup()

from example_project.celery import app  # noqa: E402 - Django comes first
from tests.integration import workflows  # noqa: E402

__all__ = ["app", "workflows"]
