"""Maintenance of journals: compaction, retention, verification, repair."""
