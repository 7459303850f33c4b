"""Webhooks: events delivered to URLs that applications register."""
