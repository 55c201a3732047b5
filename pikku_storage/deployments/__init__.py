"""What services of one system know of each other: which of them are up, calls between them, and who sent a message."""
