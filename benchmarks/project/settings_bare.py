"""The settings without our app: what a Celery worker weighs that has loaded Django."""

from benchmarks.project.settings import *

INSTALLED_APPS = []
