"""What bench_hydra.py is made of."""
