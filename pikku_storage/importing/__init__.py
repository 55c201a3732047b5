"""Bringing over what the TypeScript packages wrote: `manage.py import_pikku`.

A source (`sources`) yields rows as they are stored, a table (`tables`) says what becomes of one, and the importer
(`importer`) writes them in batches.
"""
