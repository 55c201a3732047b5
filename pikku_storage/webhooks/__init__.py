"""Outgoing webhooks, delivered at least once; and what a receiver checks them with."""

from pikku_storage.webhooks.signing import sign_webhook, verify_webhook

__all__ = ["sign_webhook", "verify_webhook"]
