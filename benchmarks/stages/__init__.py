"""Parts of bench_stages.py: nodes that replay recorded inputs, and time stamps of real processes."""
