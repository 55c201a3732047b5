"""The room of channels."""
