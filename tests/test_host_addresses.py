from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.host_addresses import address_from_socket, host_version, mapped_host, source_network


@given(st.ip_addresses(v=4).map(str), st.integers(0, 65_535))
def test_an_ipv4_address_survives_its_way_through_a_socket_of_both_families(host: str, port: int) -> None:
    assert address_from_socket((mapped_host(host), port, 0, 0)) == (host, port)


@given(st.ip_addresses(v=6).map(str))
def test_an_ipv6_address_is_not_mapped(host: str) -> None:
    assert mapped_host(host) == host
    assert host_version(host) == 6


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (("::1", 7, 0, 0), ("::1", 7)),
        (("fe80::1%eth0", 7, 0, 2), ("fe80::1%eth0", 7)),
        (("192.0.2.1", 7), ("192.0.2.1", 7)),
        (("::ffff:192.0.2.1", 7, 0, 0), ("192.0.2.1", 7)),
        (("::ffff:0:c000:201", 7, 0, 0), ("::ffff:0:c000:201", 7)),
    ],
)
def test_the_address_of_a_socket_is_shown_in_one_form(name: tuple[object, ...], address: tuple[str, int]) -> None:
    assert address_from_socket(name) == address


@given(st.ip_addresses(v=6, network="2001:db8::/64").map(str))
def test_all_addresses_of_a_64_are_one_source(host: str) -> None:
    assert source_network(host) == "2001:db8::/64"


def test_hosts_of_other_networks_are_other_sources() -> None:
    hosts = ["192.0.2.1", "192.0.2.2", "2001:db8:0:1::1", "2001:db8::1", "fe80::1%eth0", "a name"]
    assert len({source_network(host) for host in hosts}) == len(hosts)
