"""What carries the lines between two nodes: TCP, TLS, UDP, IRC, or named pipes."""
