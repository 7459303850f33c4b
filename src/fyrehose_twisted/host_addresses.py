"""IP addresses of hosts as text: their family, their one form, and the network by which they are limited."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any

from fyrehose_twisted.effects import Address

LOOPBACK_OF = {4: "127.0.0.1", 6: "::1"}
"""Loopback address by IP version."""

_MAPPED = "::ffff:"


def host_version(host: str) -> int:
    """Return the IP version of an address: 4 or 6."""
    return 6 if ":" in host else 4


def is_loopback(host: str) -> bool:
    """Return whether an IP address is reachable from its own host only."""
    return host == "::1" or host.startswith("127.")


def format_address(address: Address) -> str:
    """Return ``HOST:PORT``, or ``[HOST]:PORT`` for an IPv6 address."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_fields(address: Address) -> dict[str, Any]:
    """Return the fields of a log event about an address: ``host``, ``port``, and ``place``, which is its text."""
    return {"host": address[0], "port": address[1], "place": format_address(address)}


def mapped_host(host: str) -> str:
    """Return the address by which a socket of both families sends to ``host``."""
    return host if ":" in host else _MAPPED + host


def address_from_socket(name: tuple[object, ...]) -> Address:
    """Return host and port of a socket address. An IPv4-mapped address is shown as the IPv4 address."""
    host, port = str(name[0]), name[1]
    assert isinstance(port, int), "an address of TCP or UDP has a port"
    if host.startswith(_MAPPED) and "." in host:
        host = host[len(_MAPPED) :]
    return host, port


@lru_cache(maxsize=4096)
def source_network(host: str) -> str:
    """Return the network by which a source address is limited: an IPv4 address, or the /64 of an IPv6 address.

    One IPv6 host may use all addresses of its /64. Anything else than an IP address is returned unchanged.
    """
    if "." in host and ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64)) + "/64"
