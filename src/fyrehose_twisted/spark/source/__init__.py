"""Spark data source over journals."""
