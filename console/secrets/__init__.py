"""Secrets and credentials: what there is, under which keys, and who did what to it. No list or page holds a value."""
