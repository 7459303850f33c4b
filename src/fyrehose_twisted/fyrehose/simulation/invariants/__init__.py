"""Invariants of fyrehose."""
