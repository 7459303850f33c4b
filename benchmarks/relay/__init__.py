"""Parts of the benchmark of relays."""
