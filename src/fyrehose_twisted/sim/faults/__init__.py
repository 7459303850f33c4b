"""Faults of simulated runs."""
