"""Protocol rules of the backbone."""
