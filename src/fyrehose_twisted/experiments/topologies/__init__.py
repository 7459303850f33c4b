"""Networks to experiment on: locations, links, generators, files."""
