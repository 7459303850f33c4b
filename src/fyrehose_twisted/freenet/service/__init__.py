"""The freenet node as a service for ``twistd``."""
