"""Channels, their topics, and events that reach them."""
