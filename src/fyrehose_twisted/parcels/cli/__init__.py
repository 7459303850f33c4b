"""Subcommands of ``fyrehose parcels``."""
