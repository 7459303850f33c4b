"""Messages of hydra, lines of IRC, and their codecs."""
