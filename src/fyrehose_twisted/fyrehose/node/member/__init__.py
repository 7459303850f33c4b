"""Member of a group of backbones, of which one numbers messages at a time."""
