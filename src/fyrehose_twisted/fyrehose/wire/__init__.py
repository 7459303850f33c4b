"""Packets of fyrehose and their codecs."""
