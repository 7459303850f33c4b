"""The client's rules."""
