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
    assert (table.subscribers, table.journals) == ((BOB,), (BOB,))


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
    assert (table.subscribers, set(table.journals)) == ((BOB,), {ALICE, BOB})
    table.keep(Keepalive(flags=Flags.NOJOURNAL), ALICE, ALICE, 1.0)
    assert (set(table.subscribers), table.journals) == ({ALICE, BOB}, (BOB,))


def test_the_groups_are_the_same_tuples_until_they_change() -> None:
    table = clients()
    subscribers, journals = table.subscribers, table.journals
    table.keep(Keepalive(), ALICE, ALICE, 2.0)
    assert table.subscribers is subscribers
    table.keep(Keepalive(flags=Flags.NOSUBSCRIBE), ALICE, ALICE, 2.0)
    assert table.journals is journals
    table.keep(Keepalive(), ALICE, ALICE, 2.0)
    assert (table.subscribers, subscribers) == ((BOB, ALICE), (ALICE, BOB))
