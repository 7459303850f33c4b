"""Reports of a trial: text, CSV, JSON, SVG, and a page that replays its trace."""
