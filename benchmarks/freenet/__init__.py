"""What the benchmarks of the freenet wing are made of."""
