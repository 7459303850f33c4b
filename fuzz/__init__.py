"""Fuzz targets for every codec and parser of the library; see docs/howto/fuzz.md."""
