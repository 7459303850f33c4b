"""Hydra: nodes elect a leader, which alone holds the connection to IRC, and relay its lines (document 002).

:mod:`~fyrehose_twisted.hydra.node` has the rules, :mod:`~fyrehose_twisted.hydra.service` runs them on Twisted.
"""
