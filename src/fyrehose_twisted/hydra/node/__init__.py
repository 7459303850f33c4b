"""Rules of hydra, without I/O."""
