"""Networks that grow: nodes join one by one and choose their links by a policy."""
