"""Addresses in packets: ADDR, of 4 bytes for IPv4 and 16 bytes for IPv6, and PORT."""

from __future__ import annotations

from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage

IPV4_SIZE, IPV6_SIZE = 4, 16
"""Size of ADDR in bytes."""

_MAPPED = bytes(10) + b"\xff\xff"
_UNSPECIFIED_IPV4, _UNSPECIFIED_IPV6 = bytes(IPV4_SIZE), bytes(IPV6_SIZE)


def pack_address(address: Address) -> tuple[bytes, int]:
    """Return ADDR and PORT of ``address``: 16 bytes of ADDR for an IPv6 address, 4 bytes for any other.

    ``::`` stands for the source of a packet, as ``0.0.0.0`` does, and an IPv4-mapped address for the IPv4 address.

    :raises UnencodableMessage: if it is not an IP address and a port, or has a meaning on one link only.
    """
    host, port = address
    if not 0 <= port <= 65_535:
        raise UnencodableMessage(f"port {port} is outside 0..65535")
    if ":" not in host:
        try:
            return inet_pton(AF_INET, host), port
        except (OSError, ValueError):  # inet_aton would also take "127.1"
            raise UnencodableMessage(f"{host!r} is not an IPv4 address in dotted form") from None
    try:
        packed = inet_pton(AF_INET6, host)
    except (OSError, ValueError):
        raise UnencodableMessage(f"{host!r} is not an IPv6 address without a zone") from None
    if packed == _UNSPECIFIED_IPV6:
        return _UNSPECIFIED_IPV4, port
    if packed.startswith(_MAPPED):
        return packed[len(_MAPPED) :], port
    problem = _ipv6_problem(packed)
    if problem is not None:
        raise UnencodableMessage(f"{host} is {problem}, which means nothing to other hosts")
    return packed, port


def unpack_ipv6_host(packed: bytes) -> str:
    """Return the host in an ADDR of 16 bytes.

    :raises MalformedPacket: if it is a multicast or link-local address, or one that has a form of 4 bytes.
    """
    if packed.startswith(_MAPPED):
        raise MalformedPacket("address", "ADDR of 16 bytes with an IPv4 address, which has 4")
    problem = "the unspecified address" if packed == _UNSPECIFIED_IPV6 else _ipv6_problem(packed)
    if problem is not None:
        raise MalformedPacket("address", f"ADDR {inet_ntop(AF_INET6, packed)} is {problem}")
    return inet_ntop(AF_INET6, packed)


def map_host(packed: bytes) -> bytes:
    """Return an ADDR as one of 16 bytes, which for an IPv4 address is the IPv4-mapped one."""
    return packed if len(packed) == IPV6_SIZE else _MAPPED + packed


def unpack_mapped_host(packed: bytes) -> str:
    """Return the host in an ADDR of 16 bytes, which may be IPv4-mapped. Raises like :func:`unpack_ipv6_host`."""
    if packed.startswith(_MAPPED):
        return inet_ntop(AF_INET, packed[len(_MAPPED) :])
    return unpack_ipv6_host(packed)


def can_be_packed(address: Address) -> bool:
    """Return whether a packet can carry ``address``. A link-local address means nothing to hosts on other links."""
    try:
        pack_address(address)
    except UnencodableMessage:
        return False
    return True


def _ipv6_problem(packed: bytes) -> str | None:
    if packed[0] == 0xFF:
        return "a multicast address"
    return "a link-local address" if packed[0] == 0xFE and packed[1] & 0xC0 == 0x80 else None
