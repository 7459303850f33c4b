"""Object storage for the sealed segments of a journal."""
