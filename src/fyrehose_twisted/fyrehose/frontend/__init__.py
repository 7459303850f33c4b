"""Frontend for applications without this library: publishing over HTTP, or as lines over TCP."""
