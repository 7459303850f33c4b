"""Simulated networks of freenet nodes, and trials on them."""
