"""IRC client of the leader, and bots."""
