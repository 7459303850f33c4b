"""Raft: one log among members of which some may be gone."""
