"""Events on their way into the order and out of it."""
