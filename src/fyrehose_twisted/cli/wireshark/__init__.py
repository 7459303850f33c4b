"""Dissectors for Wireshark, and the command that installs them."""
