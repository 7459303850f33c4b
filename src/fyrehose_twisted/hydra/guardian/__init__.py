"""Guardian: a small process that sends the DROP for a node whose process has died."""
