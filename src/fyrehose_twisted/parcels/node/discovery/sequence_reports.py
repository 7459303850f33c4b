"""Sequence numbers that peers report (document 004, "Sequence recovery phase")."""

from __future__ import annotations

from fyrehose_twisted.parcels.wire.messages import MAX_SEQUENCE


class SequenceReports:
    """Largest reported sequence numbers.

    :ivar document: largest one of a peer that supports only document 004.
    :ivar cluster: largest one of a node of this implementation.
    """

    def __init__(self) -> None:
        self.document = 0
        self.cluster = 0

    def document_peer_reported(self, sequence: int) -> None:
        """Record the last sequence number of a peer that supports only document 004."""
        # Numbering continues from here. The cap keeps a hostile peer from exhausting the sequence numbers.
        self.document = max(self.document, min(sequence, MAX_SEQUENCE // 2))

    def cluster_node_reported(self, sequence: int) -> None:
        """Record the last sequence number of a node of this implementation."""
        self.cluster = max(self.cluster, sequence)
