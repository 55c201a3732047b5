#!/usr/bin/env python
"""Runs the example project's management commands; start with `manage.py demo`."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    execute_from_command_line(sys.argv)
