"""The console's pages in the Django admin. Django imports this module when it looks for admin classes."""

from importlib import import_module

from django.apps import apps

ROOMS = (
    "workflows",
    "agents",
    "secrets",
    "access",
    "channels",
    "deployments",
    "webhooks",
    "audit",
    "virtual_users",
)
"""Each is of the app of that name, and is there if that is installed."""

for _room in ROOMS:
    if apps.is_installed(f"pikku_storage.{_room}"):
        import_module(f"console.{_room}.admin")
