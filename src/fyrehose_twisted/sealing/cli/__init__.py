"""Command ``fyrehose key``."""
