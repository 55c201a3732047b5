"""Rooms in which people who are signed in talk: channels, topics and WebSockets."""
