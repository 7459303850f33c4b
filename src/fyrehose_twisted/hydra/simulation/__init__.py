"""Simulated hydra networks: participants, scenarios and invariants."""
