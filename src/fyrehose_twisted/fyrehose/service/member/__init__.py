"""Members of a group of backbones as services: their state, ports, control and options."""
