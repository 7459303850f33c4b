from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.node.log_entries import EVENT_OVERHEAD
from fyrehose_twisted.parcels.node.ordering.pending import PendingRun, PendingRuns, run_key, run_size
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import Publish, PublisherRun

ONE, OTHER = Peer(("10.0.0.1", 1), 1, False), Peer(("10.0.0.1", 2), 2, False)


def test_pending_runs_keep_their_order() -> None:
    pending = PendingRuns(1_000)
    runs = [PublisherRun("p", 0, first, [b"x"]) for first in (3, 1, 2)]
    assert [pending.add(run, ONE) for run in runs] == [True] * 3
    assert list(pending.runs()) == runs
    assert len(pending) == 3
    assert pending.pop(run_key(runs[0])) == PendingRun(runs[0], ONE, 1 + EVENT_OVERHEAD)
    assert pending.pop(run_key(runs[0])) is None
    assert pending.add(runs[0], ONE)
    assert list(pending.runs()) == [runs[1], runs[2], runs[0]]
    assert pending.size == 3 * (1 + EVENT_OVERHEAD)


def test_adding_a_pending_run_replaces_its_requester() -> None:
    pending = PendingRuns(100)
    run = PublisherRun("p", 0, 1, [b"x"])
    assert pending.add(run, ONE) is True
    assert pending.add(run, OTHER) is None
    assert (len(pending), pending.size) == (1, 1 + EVENT_OVERHEAD)
    assert pending.pop(run_key(run)) == PendingRun(run, OTHER, 1 + EVENT_OVERHEAD)
    assert pending.size == 0


def test_pending_runs_of_peers_are_limited_in_bytes() -> None:
    pending = PendingRuns(2 * (10 + EVENT_OVERHEAD))
    assert pending.add(PublisherRun("p", 0, 1, [bytes(10)]), ONE) is True
    assert pending.add(PublisherRun("p", 0, 2, [bytes(11)]), ONE) is False
    assert pending.add(PublisherRun("p", 0, 2, [bytes(10)]), ONE) is True
    assert pending.add(PublisherRun("p", 0, 3, [b""]), ONE) is False
    assert pending.add(PublisherRun("p", 0, 1, [bytes(10)]), ONE) is None
    # Runs of the node itself are counted elsewhere.
    assert pending.add(PublisherRun("me", 0, 3, [b""]), None) is True


def test_run_key_includes_the_number_of_events() -> None:
    assert run_key(PublisherRun("p", 1, 2, [b"a"])) != run_key(PublisherRun("p", 1, 2, [b"a", b"b"]))
    assert run_key(PublisherRun("p", 1, 2, [b"a"])) == ("p", 1, 2, 1)


def test_clear_returns_and_forgets_all_pending_runs() -> None:
    pending = PendingRuns(1_000)
    pending.add(PublisherRun("p", 0, 1, [b"x"]), ONE)
    assert [one.run.first for one in pending.clear()] == [1]
    assert (len(pending), pending.size, pending.clear()) == (0, 0, [])


@given(
    st.text(min_size=1, max_size=40).filter(lambda name: name.isprintable()),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**40),
    st.lists(st.binary(max_size=400), max_size=30),
)
def test_run_size_is_at_least_its_encoded_size(name: str, epoch: int, first: int, events: list[bytes]) -> None:
    run = PublisherRun(name, epoch, first, events)
    parcel = ParcelCodec().encode(Publish(run))
    assert len(parcel) - 1 - parcel[0] <= run_size(run)
