"""Secrets that services share are in no frame of an error that leaves the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import include, path
from pytest_django import Settings

from pikku_storage.content import signed_url
from pikku_storage.crypto.remote import authorization
from pikku_storage.deployments.service import DeploymentService
from pikku_storage.exceptions import WeakKeyMaterialError
from pikku_storage.workflows import function
from tests.conformance.test_nothing_is_shown import assert_hidden

pytestmark = pytest.mark.django_db
urlpatterns = [path("", include("pikku_storage.deployments.urls"))]
WEAK, GOOD, OTHER = "weak-0123456789", "good-0123456789-0123456789-abcdef", "other-0123456789-0123456789-abcde"


def called() -> Any:
    headers: Any = {"Authorization": authorization(GOOD, {"1": OTHER}, "secrets.failing")}
    return Client().post("/remote/rpc/secrets.failing", {}, content_type="application/json", headers=headers)


def invoked() -> Any:
    return DeploymentService().invoke("rates", {}, {"userId": "ada"})


@pytest.mark.parametrize(
    ("given", "fails", "kind"),
    [
        ({"REMOTE_SECRET": WEAK, "JWT_SECRETS": {"1": OTHER}}, invoked, WeakKeyMaterialError),
        ({"REMOTE_SECRET": GOOD, "JWT_SECRETS": {"1": WEAK}}, invoked, WeakKeyMaterialError),
        ({"REMOTE_SECRET": WEAK, "JWT_SECRETS": {"1": OTHER}}, called, WeakKeyMaterialError),
        ({"REMOTE_SECRET": GOOD, "JWT_SECRETS": {"1": WEAK}}, called, WeakKeyMaterialError),
        ({"REMOTE_SECRET": GOOD}, called, ImproperlyConfigured),
        ({"REMOTE_SECRET": GOOD, "JWT_SECRETS": {"1": OTHER}}, called, ZeroDivisionError),
        ({"JWT_SECRETS": {"1": WEAK}}, lambda: signed_url("/a"), WeakKeyMaterialError),
    ],
)
def test_no_frame_shows_a_secret_or_a_token(
    settings: Settings, given: dict[str, Any], fails: Callable[[], Any], kind: type[Exception]
) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": None, **given}
    settings.ROOT_URLCONF = __name__

    @function(remote=True, name="secrets.failing")
    def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(kind) as caught:
        fails()
    assert_hidden(caught.value, WEAK, GOOD, OTHER, "Bearer ey", "eyJ")
