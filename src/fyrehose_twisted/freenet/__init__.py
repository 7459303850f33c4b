"""Publish/subscribe trees that grow by routing on a ring of locations (document 003)."""
