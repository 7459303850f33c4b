"""Simulated disks."""
