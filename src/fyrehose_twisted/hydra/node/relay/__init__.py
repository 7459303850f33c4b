"""Relaying of lines between IRC and nodes."""
