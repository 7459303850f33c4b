"""The backbone's rules."""
