"""Where applications without the library publish: over HTTP, or a message a line over TCP."""
