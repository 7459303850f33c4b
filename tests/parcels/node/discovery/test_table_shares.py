from __future__ import annotations

from fyrehose_twisted.parcels.node.discovery.table_shares import TableEntry, TableQuota


def test_the_addresses_of_an_ipv6_64_share_the_quota_of_one_source() -> None:
    quota = TableQuota(16, secret=True)
    taken = [TableEntry(f"2001:db8::{number}", False) for number in range(quota.max_per_source)]
    assert quota.max_per_source == 2
    assert not quota.has_room(taken, TableEntry("2001:db8::ffff", False))
    assert quota.has_room(taken, TableEntry("2001:db8:0:1::1", False))
    assert quota.has_room(taken, TableEntry("2001:db8::ffff", True)), "authenticated nodes have no such quota"


def test_names_and_ipv4_addresses_are_sources_of_their_own() -> None:
    quota = TableQuota(16, secret=True)
    taken = [TableEntry(host, False) for host in ("192.0.2.1", "192.0.2.1", "a.example")]
    assert not quota.has_room(taken, TableEntry("192.0.2.1", False))
    assert quota.has_room(taken, TableEntry("192.0.2.2", False))
    assert quota.has_room(taken, TableEntry("b.example", False))
