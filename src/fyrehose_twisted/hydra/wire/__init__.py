"""Hydra messages, IRC lines and their codecs."""
