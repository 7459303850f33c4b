"""Sweeps: many networks of document 003, each simulated by one worker of Spark, and a page that shows what came out."""
