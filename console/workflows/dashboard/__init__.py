"""The dashboard: what the workflows are doing, at a glance."""
