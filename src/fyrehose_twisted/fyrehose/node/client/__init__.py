"""Protocol rules of the client."""
