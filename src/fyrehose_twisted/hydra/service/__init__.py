"""The hydra node as a service for ``twistd``."""
