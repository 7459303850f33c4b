"""Transports between nodes: TCP, TLS, UDP, IRC and named pipes."""
