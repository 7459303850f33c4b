"""The ``fyrehose journal`` command."""
