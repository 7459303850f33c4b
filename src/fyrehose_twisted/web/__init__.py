"""HTTP infrastructure shared by the services: sites with limits, responses, event streams and access control."""
