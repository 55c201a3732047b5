"""Durable workflows, agent memory, encrypted secrets and their console, for Django."""

__version__ = "0.1.0"
