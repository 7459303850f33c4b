"""Rules of freenet, without I/O."""
