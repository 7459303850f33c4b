"""Parcels: a cluster that keeps one order for an unbounded stream of events.

``node`` has the rules without I/O, ``protocol`` and ``service`` join them to Twisted, ``web`` is the application
interface over HTTP, and ``tap`` is the service.
"""
