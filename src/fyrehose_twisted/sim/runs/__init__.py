"""Running scenarios: many seeds, one seed, traces and reports."""
