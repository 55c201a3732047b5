"""Workflows that are drawn, not written: nodes, and the edges between them. Nothing here touches the database."""
