"""The publishing half of a client: its send queue, retransmission and congestion control."""
