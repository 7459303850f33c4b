"""Nodes of a relay: a client of its parent, and a backbone for its own clients, which share the numbers."""
