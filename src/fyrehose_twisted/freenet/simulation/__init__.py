"""Simulated freenet networks: participants, scenarios, invariants."""
