"""Reliable streams over UDP."""
