"""Who may do what: scopes, and whoever acts."""
