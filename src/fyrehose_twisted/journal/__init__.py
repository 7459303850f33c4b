"""Durable storage of stream records: append-only segments, range reads, crash recovery.

The file format is described in docs/reference/journal-format.md.
"""
