"""Handlers of the messages of linked nodes."""
