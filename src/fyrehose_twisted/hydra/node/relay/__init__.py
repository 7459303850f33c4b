"""Relaying of lines between IRC and the nodes."""
