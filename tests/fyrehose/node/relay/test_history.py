from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Burst
from fyrehose_twisted.fyrehose.node.backbone.retransmit_buffer import RetransmitBuffer
from fyrehose_twisted.fyrehose.node.relay.history import MESSAGE_OVERHEAD, RelayHistory
from fyrehose_twisted.fyrehose.wire.codec import encode_deliver

LIMIT = 100_000


def add(history: RelayHistory, *sequences: int) -> None:
    for sequence in sequences:
        datagram = encode_deliver(sequence, b"%d" % sequence)
        history.add(sequence, Burst(datagram, len(datagram)))


def make_history(first: int = 1, limit: int = LIMIT) -> tuple[RelayHistory, RetransmitBuffer]:
    buffer = RetransmitBuffer(limit)
    history = RelayHistory(buffer)
    history.begin(first)
    return history, buffer


@given(
    order=st.permutations(range(10, 30)),
    lost=st.sets(st.integers(10, 29)),
    batches=st.lists(st.integers(1, 5), max_size=20),
)
def test_every_message_is_found_in_whatever_order_messages_arrive_and_are_given_up(
    order: list[int], lost: set[int], batches: list[int]
) -> None:
    history, buffer = make_history(10)
    held: set[int] = set()
    for sequence in order:
        if sequence not in lost:
            add(history, sequence)
            held.add(sequence)
        for missing in sorted(lost):
            if missing == buffer.end:  # As a client gives numbers up: in order.
                history.skip(missing, missing)
        expected = {number: b"%d" % number for number in range(8, 32) if number in held}
        assert {number: data for number in range(8, 32) if (data := history.get(number)) is not None} == expected
        assert history.lowest(8, 32, 100) == sorted(held)
        assert history.lowest(12, 25, 3) == [number for number in sorted(held) if 12 <= number <= 25][:3]
    assert buffer.end == 30
    in_buffer = [number for first, last in history.held(1, 100) for number in range(first, last + 1)]
    assert in_buffer == sorted(held), "with nothing missing, all are in the buffer"
    assert history.ahead_size == 0


def test_a_run_that_overlaps_what_is_stored_adds_the_rest() -> None:
    history, buffer = make_history()
    add(history, 1, 2)
    datagrams = [encode_deliver(number, b"%d" % number) for number in range(1, 5)]
    history.add(1, Burst(b"".join(datagrams), len(datagrams[0])))
    assert buffer.end == 5
    assert history.get(4) == b"4"


def test_messages_behind_a_gap_stay_within_the_limit_and_the_lowest_are_kept() -> None:
    history, _ = make_history(limit=3 * (MESSAGE_OVERHEAD + 12))
    add(history, 5, 7, 9, 3, 11)
    assert history.ahead_size <= 3 * (MESSAGE_OVERHEAD + 12)
    assert history.lowest(1, 20, 10) == [3, 5, 7]


def test_a_correction_of_the_backbone_replaces_a_message_of_any_length() -> None:
    history, buffer = make_history()
    datagrams = [encode_deliver(number, b"same") for number in range(1, 8)]
    history.add(1, Burst(b"".join(datagrams), len(datagrams[0])))
    add(history, 9)
    history.put(4, [b"corrected"])
    history.put(9, [b"also this"])
    history.put(7, [b"same"])
    assert [history.get(number) for number in (3, 4, 5, 9)] == [b"same", b"corrected", b"same", b"also this"]
    sent, after, _ = buffer.read(1, 7, LIMIT)
    assert after == 8
    found = [
        bytes(datagram) for part in sent for datagram in (part.iter_datagrams() if isinstance(part, Burst) else [part])
    ]
    assert found == [*datagrams[:3], encode_deliver(4, b"corrected"), *datagrams[4:]]


def test_beginning_again_forgets_what_was_stored() -> None:
    history, buffer = make_history()
    add(history, 1, 3)
    history.begin(40)
    assert history.lowest(1, 100, 10) == []
    assert (buffer.first, buffer.end, history.ahead_size) == (40, 40, 0)
