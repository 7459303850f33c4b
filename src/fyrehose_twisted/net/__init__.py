"""Sockets that more than one protocol needs."""
