"""Hydra node without I/O."""
