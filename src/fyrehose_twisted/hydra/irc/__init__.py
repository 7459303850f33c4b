"""IRC client of the leader, and the bots on it."""
