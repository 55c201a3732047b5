"""Database backends for Django that a database of this package needs and nobody else offers."""
