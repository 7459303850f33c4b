"""Records of journals over HTTP: ranges, live streams, filters."""
