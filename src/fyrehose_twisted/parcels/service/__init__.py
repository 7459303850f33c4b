"""The parcels node as a service for ``twistd``."""
