"""Journals of other machines, over TCP."""
