"""The ``fyrehose-experiments`` command."""
