"""Export of journals as Arrow tables and Parquet files."""
