"""A small shop that fulfils its orders with a durable workflow."""
