"""Sealing and signing, in the formats of the TypeScript packages. Pure functions: no database, no settings."""
