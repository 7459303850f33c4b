from __future__ import annotations

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.relay.push_returns import MAX_BYTES, MAX_PUSHES, PushReturns
from fyrehose_twisted.fyrehose.wire.envelope import wrap

ALICE: Address = ("192.0.2.7", 4001)
BOB: Address = ("192.0.2.8", 4002)


def test_a_publisher_is_found_once_by_the_envelope_or_the_data_of_its_message() -> None:
    returns = PushReturns()
    returns.add(wrap(b"12345678", 7, b"payload"), ALICE)
    returns.add(b"without", BOB)
    assert returns.take(wrap(b"12345678", 8, b"payload")) is None
    assert returns.take(b"without") == BOB
    assert returns.take(b"without") is None
    assert len(returns) == 1


def test_publishers_of_the_latest_messages_are_remembered_within_limits() -> None:
    returns = PushReturns()
    for number in range(MAX_PUSHES + 1):
        returns.add(wrap(b"12345678", number, b"payload"), ALICE)
    assert len(returns) == MAX_PUSHES
    assert returns.take(wrap(b"12345678", 0, b"")) is None
    assert returns.take(wrap(b"12345678", 1, b"")) == ALICE
    large = MAX_BYTES // 2 - 1_000
    for number in range(3):
        returns.add(b"%d" % number + bytes(large), BOB)
    assert returns.take(b"0" + bytes(large)) is None
    assert returns.take(b"2" + bytes(large)) == BOB
