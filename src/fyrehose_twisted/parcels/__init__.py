"""Parcels: a cluster that puts an unbounded stream of events into one total order.

``node`` implements the protocol without I/O. ``protocol`` and ``service`` run it on Twisted. ``web`` is the HTTP API
for applications, ``client`` its clients, and ``cli`` the command line.
"""
