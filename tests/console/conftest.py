"""Callers of the console: nobody, staff without and with permission, and a superuser."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client


def client_of(user: User) -> Client:
    """A browser in which that user is logged in."""
    client = Client()
    client.force_login(user)
    return client


def context_of(response: Any) -> dict[str, Any]:
    """What the template of a page was given."""
    context: dict[str, Any] = response.context_data
    return context


@pytest.fixture
def superuser(db: None) -> User:
    """May see everything."""
    return User.objects.create_superuser("root", password="pass")


@pytest.fixture
def clerk(db: None) -> User:
    """Staff without any permission."""
    return User.objects.create_user("clerk", password="pass", is_staff=True)


@pytest.fixture
def operator(db: None) -> User:
    """Staff with Django's permissions to view the workflow models."""
    user = User.objects.create_user("operator", password="pass", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="pikku_workflows", codename__startswith="view_")
    )
    return user


@pytest.fixture
def root_client(superuser: User) -> Client:
    """The superuser's browser."""
    return client_of(superuser)
