"""Hydra (document 002): nodes elect a leader, which alone connects to IRC and relays its lines to the others.

:mod:`~fyrehose_twisted.hydra.node.node` implements the protocol without I/O.
:mod:`~fyrehose_twisted.hydra.service.service` runs a node on Twisted.
"""
