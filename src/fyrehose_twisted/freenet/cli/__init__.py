"""Subcommands of ``fyrehose freenet``."""
