"""TLS with certificates of both ends."""
