"""Change of the leader in a group of backbones, as its clients handle it."""
