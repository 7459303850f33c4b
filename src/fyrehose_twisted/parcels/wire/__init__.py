"""Parcels and their codecs."""
