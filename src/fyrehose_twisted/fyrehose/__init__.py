"""Fyrehose: ordered messaging over UDP.

A backbone numbers every message and sends it to all subscribers. The backbone and other clients repair gaps.

Applications start at :mod:`~fyrehose_twisted.fyrehose.protocol`. The protocol rules are in
:mod:`~fyrehose_twisted.fyrehose.node.backbone.backbone` and :mod:`~fyrehose_twisted.fyrehose.node.client.client`.
"""
