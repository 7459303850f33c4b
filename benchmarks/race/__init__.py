"""The parts of bench_race.py: brokers, the loads that are put on them, and the plot."""
