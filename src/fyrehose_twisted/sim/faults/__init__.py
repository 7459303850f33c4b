"""Faults of a run."""
