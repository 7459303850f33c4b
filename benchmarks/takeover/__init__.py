"""Takeovers of fyrehose, NATS JetStream and etcd with three members each, as a subscriber sees them."""
