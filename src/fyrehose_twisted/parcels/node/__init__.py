"""Rules of parcels, without I/O."""
