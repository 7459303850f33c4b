"""Nodes without sockets: virtual time and a network in memory, every fault drawn from one seed."""
