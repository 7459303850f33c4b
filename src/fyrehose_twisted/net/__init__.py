"""Sockets, connections and ports shared by the protocols."""
