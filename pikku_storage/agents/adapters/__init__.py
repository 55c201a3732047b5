"""Histories of agents that are built on other message formats, one module each.

Nothing of the core imports them, and each needs its own library only, if any.
"""
