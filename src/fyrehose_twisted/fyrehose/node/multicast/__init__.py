"""Multicast: one DELIVER for all clients that hear the group of their backbone."""
