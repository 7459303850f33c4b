"""Parts of the benchmark of multicast."""
