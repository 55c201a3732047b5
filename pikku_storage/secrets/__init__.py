"""Secrets and credentials. These names may be imported in settings and models, before Django's apps are ready."""

from pikku_storage.secrets.lazy import secret
from pikku_storage.secrets.values import SecretValue

__all__ = ["SecretValue", "secret"]
