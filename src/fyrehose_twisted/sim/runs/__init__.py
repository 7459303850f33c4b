"""Runs of scenarios: one seed, many seeds, traces and reports."""
