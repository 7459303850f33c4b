"""The ``fyrehose`` command."""
