"""The books that the chaos tests keep: an app of its own, for the tests only."""
