"""Protocol rules of fyrehose nodes, without I/O."""
