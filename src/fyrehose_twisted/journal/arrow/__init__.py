"""Journals as Arrow tables and Parquet files."""
