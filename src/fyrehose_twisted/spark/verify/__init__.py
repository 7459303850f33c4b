"""Comparison of independent journals of one stream: divergence, losses of each journal, and their union."""
