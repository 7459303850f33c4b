"""Publishing into the total order, and delivery from it."""
