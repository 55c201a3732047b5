"""An app with encrypted fields: for the tests only."""
