"""Remote access to journals over TCP."""
