"""Parts of the benchmarks of journals in Spark."""
