from __future__ import annotations

from fyrehose_twisted.parcels.events import OperatorWarning
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.node.peer_faults import WARNING_INTERVAL, PeerFaults

HOST = ("10.0.0.1", 1)
OTHER = ("10.0.0.2", 1)


def test_a_warning_about_a_host_is_repeated_only_in_the_next_interval() -> None:
    output = NodeOutput()
    faults = PeerFaults(output, 9, 5.0)
    for host, text in ((HOST, "a"), (HOST, "a"), (HOST, "b"), (OTHER, "a")):
        faults.warn(host, text)
    assert output.events == [OperatorWarning(text) for text in ("a", "b", "a")]
    assert faults.warnings == 3
    faults.tick(5.0 + WARNING_INTERVAL)
    assert faults.warnings == 3
    faults.tick(5.1 + WARNING_INTERVAL)
    assert faults.warnings == 0
    faults.warn(HOST, "a")
    assert len(output.events) == 4


def test_warnings_of_one_interval_are_limited_and_faults_are_not() -> None:
    output = NodeOutput()
    faults = PeerFaults(output, 2, 0.0)
    for number in range(5):
        faults.count("refused")
        faults.warn((f"10.0.0.{number}", 1), "refused")
    assert (len(output.events), faults.counts) == (2, {"refused": 5})
