"""Publishing side of a client: send queue, retransmission and congestion control."""
