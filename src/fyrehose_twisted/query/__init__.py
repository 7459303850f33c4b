"""The read side: journals of any protocol over HTTP, as ranges and live, and how everything fares.

It reads records, and knows no protocol.
"""
