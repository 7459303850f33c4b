"""Rules of fyrehose, without I/O."""
