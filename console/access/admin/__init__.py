"""The admin classes of scopes, roles and grants."""
