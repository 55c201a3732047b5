"""Views that need scopes: who gets in, and what the others are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.views import View

from pikku_storage.access.acting import acurrent_user_id, current_user_id
from pikku_storage.access.service import ScopeService
from pikku_storage.access.views import ScopesRequiredMixin, require_scopes

pytestmark = pytest.mark.django_db(transaction=True)

User = get_user_model()


@require_scopes("shop:read", "stock")
def plain(request: HttpRequest, number: int) -> HttpResponse:
    """A view that is a function."""
    return HttpResponse(f"{number}")


@require_scopes("shop:read", "stock")
async def plain_async(request: HttpRequest, number: int) -> HttpResponse:
    """A view that is a coroutine function."""
    return HttpResponse(f"{number}")


class Page(ScopesRequiredMixin, View):
    """A view that is a class."""

    scopes_required = ("shop:read", "stock")

    def get(self, request: HttpRequest, number: int) -> HttpResponse:
        return HttpResponse(f"{number}")


class AsyncPage(ScopesRequiredMixin, View):
    """A view that is a class with async handlers."""

    scopes_required = ["shop:read", "stock"]

    async def get(self, request: HttpRequest, number: int) -> HttpResponse:
        return HttpResponse(f"{number}")


def who(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(current_user_id()))


@require_scopes("shop")
async def who_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(await acurrent_user_id()))


urlpatterns = [path("who/", who), path("who-async/", who_async)]

async_page: Any = AsyncPage.as_view()
VIEWS: dict[str, Callable[..., Any]] = {
    "def": plain,
    "async def": async_to_sync(plain_async),
    "class": Page.as_view(),
    "async class": async_to_sync(async_page),
}


def request_of(user: Any, accept: str = "text/html,*/*;q=0.8") -> HttpRequest:
    request = RequestFactory().get("/page/?a=b", headers={"Accept": accept})
    request.user = user
    return request


@pytest.fixture
def clerk(db: None) -> Any:
    """A user with one of the two scopes."""
    service = ScopeService()
    service.sync_scopes(["shop", "stock"])
    user = User.objects.create_user("clerk")
    service.add_scope_to_user(user, "shop")
    return user


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_only_those_with_all_scopes_get_in(view: Callable[..., Any], clerk: Any) -> None:
    with pytest.raises(PermissionDenied, match="stock"):
        view(request_of(clerk), number=1)
    with pytest.raises(PermissionDenied):
        view(request_of(clerk, "*/*"), number=1)
    refused = view(request_of(clerk, "application/json"), number=1)
    assert (refused.status_code, refused.content) == (403, b'{"error": "missing_scope", "scope": "stock"}')

    ScopeService().add_scope_to_user(clerk, "stock")
    assert view(request_of(User.objects.get(pk=clerk.pk)), number=7).content == b"7"
    assert view(request_of(User.objects.create_superuser("root")), number=7).content == b"7"
    inactive = User.objects.create_superuser("gone", is_active=False)
    with pytest.raises(PermissionDenied):
        view(request_of(inactive), number=1)
    answer = view(request_of(AnonymousUser()), number=1)
    assert (answer.status_code, answer["Location"]) == (302, "/accounts/login/?next=/page/%3Fa%3Db")


def test_a_view_says_what_becomes_of_the_anonymous() -> None:
    with pytest.raises(PermissionDenied):
        require_scopes("shop", raise_exception=True)(plain)(request_of(AnonymousUser()), number=1)
    with pytest.raises(PermissionDenied):
        Page.as_view(raise_exception=True)(request_of(AnonymousUser()), number=1)
    answer = require_scopes("shop", login_url="/in/")(plain)(request_of(AnonymousUser()), number=1)
    assert answer["Location"].startswith("/in/?")


@pytest.mark.urls(__name__)
@pytest.mark.parametrize("address", ["/who/", "/who-async/"])
def test_through_all_middleware_the_session_says_who_acts(clerk: Any, address: str) -> None:
    client, aclient = Client(), AsyncClient()
    client.force_login(clerk)
    aclient.force_login(clerk)
    assert client.get(address).content == str(clerk.pk).encode()
    assert async_to_sync(aclient.get)(address).content == str(clerk.pk).encode()
    assert Client().get(address).status_code == (200 if address == "/who/" else 302)
    assert current_user_id() is None


def test_a_view_without_scopes_is_a_mistake() -> None:
    with pytest.raises(ImproperlyConfigured):
        require_scopes()
    with pytest.raises(ImproperlyConfigured):
        require_scopes(plain)  # type: ignore[arg-type]
    with pytest.raises(ImproperlyConfigured, match="View"):
        type("View", (ScopesRequiredMixin, View), {})().get_scopes_required()
    assert type("One", (Page,), {"scopes_required": "shop"})().get_scopes_required() == ("shop",)
