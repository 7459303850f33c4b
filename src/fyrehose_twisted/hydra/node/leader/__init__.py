"""Leadership of a network: elections, heartbeats, the lease."""
