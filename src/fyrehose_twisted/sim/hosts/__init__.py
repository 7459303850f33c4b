"""Parts of a simulated host: the timer of its node, and the crashes that wait for its disk or its node."""
