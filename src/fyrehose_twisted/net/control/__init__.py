"""Control port: commands on the same machine talk to a running node in lines of JSON."""
