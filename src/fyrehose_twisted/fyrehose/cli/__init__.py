"""Subcommands ``fyrehose pub``, ``sub`` and ``ping``."""
