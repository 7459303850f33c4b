"""Clients of a cluster, over TCP and HTTP."""
