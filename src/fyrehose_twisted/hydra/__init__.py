"""Hydra: nodes elect a leader, which alone holds the connection to IRC, and relay its lines (document 002).

:mod:`~fyrehose_twisted.hydra.node.node` has the rules, :mod:`~fyrehose_twisted.hydra.service.service` runs them on
Twisted.
"""
