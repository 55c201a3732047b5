"""The room of virtual users."""
