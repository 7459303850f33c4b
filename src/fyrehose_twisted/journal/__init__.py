"""Durable records of any stream: append-only segments, range reads, recovery. See docs/reference/journal-format.md."""
