"""Subcommands of ``fyrehose hydra``."""
