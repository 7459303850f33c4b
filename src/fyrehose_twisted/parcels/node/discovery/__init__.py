"""Discovery of other nodes and handshakes with them, without I/O (document 004, "Discovery phase")."""
