"""System checks of the secrets app."""
