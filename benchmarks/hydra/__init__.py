"""Parts of bench_hydra.py."""
