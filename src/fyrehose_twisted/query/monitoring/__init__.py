"""Monitoring of services and journals."""
