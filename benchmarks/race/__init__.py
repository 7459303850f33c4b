"""Parts of bench_race.py: brokers, their loads, and the plot."""
