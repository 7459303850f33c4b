"""Deterministic network simulator: virtual time, in-memory links, and faults drawn from one seed."""
