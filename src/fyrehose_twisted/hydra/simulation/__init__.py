"""Simulated hydra networks: participants, scenarios, invariants."""
