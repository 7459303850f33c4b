"""Execution of the pages: parsing, environments, terminals."""
