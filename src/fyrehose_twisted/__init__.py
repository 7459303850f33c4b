"""Overlay messaging for Twisted: protocols written once as I/O-free nodes.

The four protocols are :mod:`~fyrehose_twisted.fyrehose`, :mod:`~fyrehose_twisted.hydra`,
:mod:`~fyrehose_twisted.freenet` and :mod:`~fyrehose_twisted.parcels`, packages with the same layers: ``wire``,
``node``, ``protocol``, ``service``, ``cli``, ``simulation``.
"""

from fyrehose_twisted import _moved

_moved.install()
