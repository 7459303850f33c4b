"""MACs of the backbone in what its clients receive."""
