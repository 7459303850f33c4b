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


def test_a_round_trip_is_that_of_its_own_keepalive() -> None:
    presence = KeepaliveSession(ClientConfig(), Random(1), 0.0)
    tokens = [token_of(presence.next_keepalive(now)) for now in (0.0, 0.1, 0.2, 0.3)]
    assert len(set(tokens)) == 4
    assert presence.acked(tokens[0], 0.35) == 0.35
    assert presence.acked(tokens[0], 0.36) is None
    assert presence.acked(bytes(16), 0.36) is None


def test_where_tokens_are_equal_the_last_keepalive_counts_and_a_lost_one_does_no_harm() -> None:
    for config in (ClientConfig(dialect=Dialect.V1), ClientConfig(secret=bytes(16), address=("10.0.0.1", 1))):
        presence = KeepaliveSession(config, Random(1), 0.0)
        presence.next_keepalive(0.0)
        datagram = presence.next_keepalive(1.0)
        for answered_at in (1.25, 1.5):
            assert presence.acked(token_of(datagram), answered_at) == answered_at - 1


def test_unanswered_keepalives_are_forgotten() -> None:
    presence = KeepaliveSession(ClientConfig(), Random(1), 0.0)
    first = token_of(presence.next_keepalive(0.0))
    for second in range(UNANSWERED):
        presence.next_keepalive(float(second))
    assert presence.acked(first, 99.0) is None


def test_a_farewell_wants_nothing() -> None:
    presence = KeepaliveSession(ClientConfig(), Random(1), 0.0)
    farewell = presence.goodbye(0.0)
    assert farewell is not None
    packet = decode(farewell)
    assert isinstance(packet, Keepalive)
    assert packet.flags == Flags.NOSUBSCRIBE | Flags.NOJOURNAL


def test_a_farewell_is_admitted_where_a_secret_is_needed() -> None:
    config = ClientConfig(secret=bytes(16), address=("10.0.0.1", 1))
    farewell = KeepaliveSession(config, Random(1), 0.0).goodbye(0.0)
    assert farewell is not None
    packet = decode(farewell)
    assert isinstance(packet, Keepalive)
    assert token_is_valid(bytes(16), packet, 0.0)


def test_a_round_trip_is_not_negative_though_the_clock_was_set_back() -> None:
    presence = KeepaliveSession(ClientConfig(), Random(1), 0.0)
    assert presence.acked(token_of(presence.next_keepalive(100.0)), 40.0) == 0.0
