"""Simulated fyrehose networks: participants, scenarios, invariants."""
