"""Simulated TCP connections."""
