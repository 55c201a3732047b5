"""The room of webhooks."""
