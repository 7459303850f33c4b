"""Parts of the freenet benchmarks."""
