"""Callers of the console: nobody, staff without and with permission, and a superuser."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from pikku_storage.access.models import Scope
from pikku_storage.access.service import ScopeService


def client_of(user: User) -> Client:
    """A browser in which that user is logged in."""
    client = Client()
    client.force_login(user)
    return client


def staff_with(*scopes: str, name: str = "staff", is_staff: bool = True) -> User:
    """A user who was granted these scopes; those with a `*` as well, which code cannot declare."""
    user = User.objects.create_user(name, is_staff=is_staff)
    for scope in scopes:
        Scope.objects.get_or_create(name=scope, defaults={"declared": True})
        ScopeService().add_scope_to_user(user, scope)
    return user


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
    """Staff who may look at workflows."""
    return staff_with("admin:workflows:read", name="operator")


@pytest.fixture
def root_client(superuser: User) -> Client:
    """The superuser's browser."""
    return client_of(superuser)
