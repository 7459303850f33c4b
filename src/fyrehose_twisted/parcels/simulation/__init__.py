"""Simulated parcels clusters: participants, scenarios, invariants."""
