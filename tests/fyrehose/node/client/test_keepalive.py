from __future__ import annotations

from random import Random

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.client.keepalive import UNANSWERED, KeepaliveSession
from fyrehose_twisted.fyrehose.wire.codec import decode
from fyrehose_twisted.fyrehose.wire.packets import Dialect, Flags, Keepalive
from fyrehose_twisted.fyrehose.wire.token import token_is_valid


def token_of(datagram: bytes) -> bytes:
    packet = decode(datagram)
    assert isinstance(packet, Keepalive)
    return packet.token


def test_a_round_trip_is_measured_from_the_keepalive_with_the_same_token() -> None:
    session = KeepaliveSession(ClientConfig(), Random(1), 0.0)
    tokens = [token_of(session.next_keepalive(now)) for now in (0.0, 0.1, 0.2, 0.3)]
    assert len(set(tokens)) == 4
    assert session.acked(tokens[0], 0.35) == 0.35
    assert session.acked(tokens[0], 0.36) is None
    assert session.acked(bytes(16), 0.36) is None


def test_with_equal_tokens_the_round_trip_counts_from_the_last_keepalive() -> None:
    for config in (ClientConfig(dialect=Dialect.V1), ClientConfig(secret=bytes(16), address=("10.0.0.1", 1))):
        session = KeepaliveSession(config, Random(1), 0.0)
        session.next_keepalive(0.0)
        datagram = session.next_keepalive(1.0)
        for answered_at in (1.25, 1.5):
            assert session.acked(token_of(datagram), answered_at) == answered_at - 1


def test_unanswered_keepalives_are_forgotten() -> None:
    session = KeepaliveSession(ClientConfig(), Random(1), 0.0)
    first = token_of(session.next_keepalive(0.0))
    for second in range(UNANSWERED):
        session.next_keepalive(float(second))
    assert session.acked(first, 99.0) is None


def test_a_goodbye_has_the_nosubscribe_and_nojournal_flags() -> None:
    session = KeepaliveSession(ClientConfig(), Random(1), 0.0)
    goodbye = session.goodbye(0.0)
    assert goodbye is not None
    packet = decode(goodbye)
    assert isinstance(packet, Keepalive)
    assert packet.flags == Flags.NOSUBSCRIBE | Flags.NOJOURNAL


def test_a_goodbye_carries_a_valid_token_with_a_secret() -> None:
    config = ClientConfig(secret=bytes(16), address=("10.0.0.1", 1))
    goodbye = KeepaliveSession(config, Random(1), 0.0).goodbye(0.0)
    assert goodbye is not None
    packet = decode(goodbye)
    assert isinstance(packet, Keepalive)
    assert token_is_valid(bytes(16), packet, 0.0)


def test_a_round_trip_is_not_negative_after_the_clock_was_set_back() -> None:
    session = KeepaliveSession(ClientConfig(), Random(1), 0.0)
    assert session.acked(token_of(session.next_keepalive(100.0)), 40.0) == 0.0
