"""Fyrehose: a backbone numbers every message and fans it out; clients repair gaps from one another.

Applications start at :mod:`~fyrehose_twisted.fyrehose.protocol`; the rules are in
:mod:`~fyrehose_twisted.fyrehose.node.backbone.backbone` and :mod:`~fyrehose_twisted.fyrehose.node.client.client`.
"""
