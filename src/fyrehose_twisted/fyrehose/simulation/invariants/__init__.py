"""Invariants of fyrehose scenarios."""
