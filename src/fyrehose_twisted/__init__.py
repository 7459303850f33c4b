"""Overlay messaging for Twisted: protocols written once as I/O-free nodes.

Each protocol is a package ("wing") with the same rooms: ``messages``, ``codec``, the node,
``protocol`` (Twisted shells to subclass), ``tap`` (the ``twistd`` service) and ``scenarios``.
Start at :mod:`fyrehose_twisted.fyrehose`.
"""
