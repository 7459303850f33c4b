from __future__ import annotations

from fyrehose_twisted.parcels.node.discovery.sequence_reports import SequenceReports
from fyrehose_twisted.parcels.wire.messages import MAX_SEQUENCE


def test_the_largest_report_of_each_kind_of_peer_counts() -> None:
    reports = SequenceReports()
    for sequence in (5, 9, 7):
        reports.cluster_node_reported(sequence)
        reports.document_peer_reported(sequence + 1)
    assert (reports.cluster, reports.document) == (9, 10)


def test_a_document_peer_cannot_exhaust_the_sequence_numbers() -> None:
    reports = SequenceReports()
    reports.document_peer_reported(MAX_SEQUENCE)
    assert reports.document == MAX_SEQUENCE // 2
