from __future__ import annotations

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.clients import CLIENT_LIFETIME, GRACE, Clients
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.messages import Flags, Keepalive

ALICE: Address = ("10.0.0.1", 1)
BOB: Address = ("10.0.0.2", 2)


def clients() -> Clients:
    table = Clients(BackboneConfig())
    table.keep(Keepalive(), ALICE, ALICE, 0.0)
    table.keep(Keepalive(), BOB, BOB, 1.0)
    return table


def test_an_expiry_on_time_is_one() -> None:
    table = clients()
    assert [client.address for client in table.expire(CLIENT_LIFETIME)] == [ALICE]
    assert (table.subscribers, table.others) == ((BOB,), [BOB])


def test_after_a_time_in_which_nobody_looked_the_living_get_the_chance_to_say_so() -> None:
    table = clients()
    late = CLIENT_LIFETIME + 60
    assert table.expire(late) == []
    assert set(table.subscribers) == {ALICE, BOB}
    table.keep(Keepalive(), BOB, BOB, late + 1)
    assert [client.address for client in table.expire(late + GRACE)] == [ALICE]
    assert table.subscribers == (BOB,)


def test_groups_follow_the_flags() -> None:
    table = clients()
    table.keep(Keepalive(flags=Flags.NOSUBSCRIBE), ALICE, ALICE, 1.0)
    assert (table.subscribers, table.others) == ((BOB,), [ALICE, BOB])
    table.keep(Keepalive(flags=Flags.NOJOURNAL), ALICE, ALICE, 1.0)
    assert (set(table.subscribers), table.others) == ({ALICE, BOB}, [BOB])
    table.keep(Keepalive(flags=Flags.DURABLE | Flags.WATCHES), ALICE, ALICE, 1.0)
    assert (table.others, [client.address for client in table.durable]) == ([BOB], [ALICE])
    assert [client.address for client in table.watchers] == [ALICE]


def test_the_subscribers_are_the_same_tuple_until_they_change() -> None:
    table = clients()
    subscribers = table.subscribers
    table.keep(Keepalive(), ALICE, ALICE, 2.0)
    assert table.subscribers is subscribers
    table.keep(Keepalive(flags=Flags.NOSUBSCRIBE), ALICE, ALICE, 2.0)
    table.keep(Keepalive(), ALICE, ALICE, 2.0)
    assert (table.subscribers, subscribers) == ((BOB, ALICE), (ALICE, BOB))
