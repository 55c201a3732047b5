"""Workflows over HTTP: what stands behind `pikku_storage.workflows.urls` (contract console.md §6)."""
