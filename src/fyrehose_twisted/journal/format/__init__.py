"""Files of a journal: segments, frames, indexes, and the directory that they are in."""
