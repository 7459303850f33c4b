"""Messages of parcels and their codecs."""
