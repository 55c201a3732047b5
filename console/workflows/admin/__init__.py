"""The admin classes of the workflows."""
