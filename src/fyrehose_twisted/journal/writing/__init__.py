"""Writing of a journal: frames of a commit group, and the segment that they go to."""
