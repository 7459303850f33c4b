"""Maintenance of journals: compaction, retention, verification and repair."""
