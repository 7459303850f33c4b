"""Parts of bench_parcels."""
