"""Messages of freenet and their codecs."""
