"""Leadership of a network: elections, heartbeats and the lease."""
