"""Raft consensus on a replicated log, without I/O and without knowledge of any protocol.

:class:`~fyrehose_twisted.consensus.member.RaftMember` is the entry point. The user encodes and carries the messages of
:mod:`~fyrehose_twisted.consensus.messages`, and makes state durable before it sends what depends on it.
"""
