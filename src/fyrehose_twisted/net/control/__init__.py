"""Control port of a running node: JSON lines for commands on the same machine."""
