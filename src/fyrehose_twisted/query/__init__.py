"""Query service: journals of any protocol over HTTP, as ranges and live streams, and monitoring of services.

It reads records and is independent of their protocols.
"""
