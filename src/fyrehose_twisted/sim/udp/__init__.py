"""Simulated datagrams."""
