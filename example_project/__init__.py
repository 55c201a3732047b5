"""A Django project that shows how durable workflows are used: it fulfils the orders of a small shop."""

from example_project.celery import app as celery_app

__all__ = ["celery_app"]
