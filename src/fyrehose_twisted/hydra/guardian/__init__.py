"""Guardian: a small process that takes leave for a node that has died."""
