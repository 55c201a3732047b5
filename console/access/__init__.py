"""Scopes, roles and grants: what there is, who holds it and by which way, and who may hand on what."""
