from __future__ import annotations

import pytest

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import AddressList, BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone.client_table import (
    CLIENT_LIFETIME,
    EXPIRY_GRACE,
    MAX_PER_SOURCE,
    ClientTable,
)
from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient
from fyrehose_twisted.fyrehose.wire.packets import Dialect, Flags, Keepalive

ALICE: Address = ("10.0.0.1", 1)
BOB: Address = ("10.0.0.2", 2)


def clients() -> ClientTable:
    table = ClientTable(BackboneConfig())
    table.renew(Keepalive(), ALICE, ALICE, 0.0)
    table.renew(Keepalive(), BOB, BOB, 1.0)
    return table


def test_a_client_expires_on_time() -> None:
    table = clients()
    assert [client.address for client in table.expire(CLIENT_LIFETIME)] == [ALICE]
    assert (table.subscribers, table.memory_journals) == ((BOB,), [BOB])


def test_clients_get_a_grace_time_after_a_late_expiry() -> None:
    table = clients()
    late = CLIENT_LIFETIME + 60
    assert table.expire(late) == []
    assert set(table.subscribers) == {ALICE, BOB}
    table.renew(Keepalive(), BOB, BOB, late + 1)
    assert [client.address for client in table.expire(late + EXPIRY_GRACE)] == [ALICE]
    assert table.subscribers == (BOB,)


def test_client_groups_follow_the_keepalive_flags() -> None:
    table = clients()
    table.renew(Keepalive(flags=Flags.NOSUBSCRIBE), ALICE, ALICE, 1.0)
    assert (table.subscribers, table.memory_journals) == ((BOB,), [ALICE, BOB])
    table.renew(Keepalive(flags=Flags.NOJOURNAL), ALICE, ALICE, 1.0)
    assert (set(table.subscribers), table.memory_journals) == ({ALICE, BOB}, [BOB])
    table.renew(Keepalive(flags=Flags.DURABLE | Flags.WATCHES), ALICE, ALICE, 1.0)
    assert (table.memory_journals, [client.address for client in table.durable_journals]) == ([BOB], [ALICE])
    assert [client.address for client in table.watchers] == [ALICE]


def test_the_subscribers_are_the_same_tuple_until_they_change() -> None:
    table = clients()
    subscribers = table.subscribers
    table.renew(Keepalive(), ALICE, ALICE, 2.0)
    assert table.subscribers is subscribers
    table.renew(Keepalive(flags=Flags.NOSUBSCRIBE), ALICE, ALICE, 2.0)
    table.renew(Keepalive(), ALICE, ALICE, 2.0)
    assert (table.subscribers, subscribers) == ((BOB, ALICE), (ALICE, BOB))


def test_a_publisher_is_the_last_subscriber_from_its_first_message_on() -> None:
    table = clients()
    table.count_published(ALICE, 1, 9)
    subscribers = table.subscribers
    assert subscribers == (BOB, ALICE)
    table.count_published(ALICE, 1, 9)
    assert table.subscribers is subscribers


def known(address: Address, heard_at: float, flags: int = 0) -> KnownClient:
    return KnownClient(address, address, flags, Dialect.V2, 7, heard_at)


def test_each_client_change_is_returned_once() -> None:
    table = clients()
    assert table.take_changes() == (
        (ALICE, known(ALICE, 0.0)._replace(joined_sequence=0)),
        (BOB, known(BOB, 1.0)._replace(joined_sequence=0)),
    )
    assert table.take_changes() == ()
    table.expire(CLIENT_LIFETIME)
    assert table.take_changes() == ((ALICE, None),)


def test_a_restarted_backbone_serves_restored_clients_for_the_usual_lifetime() -> None:
    table = ClientTable(BackboneConfig())
    restored = table.restore([known(ALICE, 9.0), known(BOB, 6.0, Flags.NOSUBSCRIBE)], 10.0)
    assert [client.address for client in restored] == [BOB, ALICE]
    assert (table.subscribers, table.memory_journals, list(table.joined_sequences)) == ((ALICE,), [ALICE, BOB], [7, 7])
    assert table.get_by_source(BOB) is restored[0]
    table.renew(Keepalive(), ALICE, ALICE, 12.0)
    assert table.expire(14.9) == []
    assert [client.address for client in table.expire(15.0)] == [BOB]


def test_restored_clients_have_two_intervals_after_a_long_outage() -> None:
    table = ClientTable(BackboneConfig())
    table.restore([known(ALICE, 0.0), known(BOB, 1.0)], 3_600.0)
    assert set(table.subscribers) == {ALICE, BOB}
    table.renew(Keepalive(), BOB, BOB, 3_601.0)
    assert [client.address for client in table.expire(3_600.0 + EXPIRY_GRACE)] == [ALICE]


def test_restored_clients_that_are_no_longer_allowed_are_discarded() -> None:
    table = ClientTable(BackboneConfig(max_clients=1, allow=AddressList(["10.0.0.0/24"])))
    stranger = known(("10.0.1.9", 9), 9.0)
    table.restore([known(ALICE, 7.0), stranger, known(BOB, 6.0)], 10.0)
    assert table.subscribers == (BOB, ALICE)
    assert table.take_changes() == ((stranger.address, None),)


def refused(table: ClientTable, address: Address, source: Address) -> str | None:
    """Return the reason of a refusal, or ``None`` for an admitted client."""
    refusal = table.refusal_reason(Keepalive(), address, source, 0.0)
    if refusal is None:
        table.renew(Keepalive(), address, source, 0.0)
    return refusal


@pytest.mark.parametrize(("limit", "admitted"), [(None, 16), (5, 5)])
def test_the_number_of_clients_per_host_is_limited(limit: int | None, admitted: int) -> None:
    table = ClientTable(BackboneConfig(max_clients=40, max_per_host=limit))
    addresses = [("10.0.0.9", port) for port in range(30)]
    refusals = [refused(table, address, address) for address in addresses]
    assert refusals == [None] * admitted + ["host_full"] * (30 - admitted)
    assert refused(table, ALICE, ALICE) is None
    assert refused(table, addresses[0], addresses[0]) is None
    table.expire(CLIENT_LIFETIME)
    assert refused(table, addresses[-1], addresses[-1]) is None


def test_the_number_of_clients_per_socket_is_limited() -> None:
    table = ClientTable(BackboneConfig())
    refusals = [refused(table, (ALICE[0], port), ALICE) for port in range(100, 120)]
    assert refusals == [None] * MAX_PER_SOURCE + ["host_full"] * (20 - MAX_PER_SOURCE)
    assert refused(table, (ALICE[0], 119), (ALICE[0], 119)) is None
    # A client that changes its socket frees its slot.
    table.renew(Keepalive(), (ALICE[0], 100), (ALICE[0], 100), 0.0)
    assert refused(table, (ALICE[0], 118), ALICE) is None
