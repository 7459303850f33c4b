"""Parser of the headers around a packet: link layer, IP, UDP and TCP."""

from __future__ import annotations

import struct
from socket import AF_INET, AF_INET6, inet_ntop
from typing import NamedTuple

from fyrehose_twisted.cli.dump.fragments import Fragment, FragmentBuffer
from fyrehose_twisted.effects import Address

TCP, UDP = 6, 17
RAW_IP = 101
"""Link type of frames that begin with the header of IP."""

_IPV4, _IPV6 = 0x0800, 0x86DD
_VLAN_TAGS = (0x8100, 0x88A8, 0x9100)
_NULL, _ETHERNET, _LOOP, _COOKED, _IPV4_ONLY, _IPV6_ONLY, _COOKED_V2 = 0, 1, 108, 113, 228, 229, 276
_RAW = (12, 14, RAW_IP)
_EXTENSION_HEADERS = (0, 43, 60, 135)
_FRAGMENT_HEADER, _AUTHENTICATION_HEADER = 44, 51
_MAX_EXTENSION_HEADERS = 16


class UnreadableFrame(Exception):
    """A frame with the headers of UDP or TCP cannot be read. The text says why."""


class Transport(NamedTuple):
    """A UDP datagram or a TCP segment."""

    protocol: int
    """:data:`UDP` or :data:`TCP`."""
    source: Address
    destination: Address
    payload: bytes
    missing: int = 0
    """Bytes of the payload that the capture has cut off."""
    sequence: int = 0
    """Sequence number of the first byte; only of TCP."""
    flags: int = 0
    """Flags of TCP."""
    acknowledged: int = 0
    """Sequence number up to which TCP acknowledges the other direction, if its flag says so."""


class HeaderParser:
    """Parser of frames, which joins the fragments of IP packets."""

    def __init__(self) -> None:
        self.fragments = FragmentBuffer()

    def parse(self, link_type: int, frame: bytes) -> Transport | None:
        """Return the datagram or segment in a frame.

        :return: ``None`` if there is none, as in ARP and in a fragment before the last.
        :raises UnreadableFrame: if the frame is damaged or cut within its headers, or has an unknown link type.
        """
        try:
            ip = _skip_link(link_type, frame)
            if ip is None:
                return None
            return self._parse_ipv4(ip) if ip[0] >> 4 == 4 else self._parse_ipv6(ip)
        except (struct.error, IndexError):
            raise UnreadableFrame(f"a frame of {len(frame)} bytes ends within its headers") from None

    def _parse_ipv4(self, ip: bytes) -> Transport | None:
        first, size, identifier, place, protocol, source, destination = struct.unpack_from(">BxHHHxBxx4s4s", ip)
        header = (first & 15) * 4
        if header < 20:
            raise UnreadableFrame(f"an IPv4 header of {header} bytes")
        if protocol not in (TCP, UDP):
            return None
        # Packets that the kernel hands to the network card to be segmented have no size, if over 64 KiB.
        size = size or len(ip)
        content, missing = ip[header:size], size - len(ip)
        if place & 0x3FFF:
            fragment = Fragment((source, destination, protocol, identifier), place & 0x1FFF, bool(place & 0x2000))
            joined = None if missing > 0 else self.fragments.add(fragment, content)
            if joined is None:
                return None
            content, missing = joined, 0
        return _parse_transport(protocol, inet_ntop(AF_INET, source), inet_ntop(AF_INET, destination), content, missing)

    def _parse_ipv6(self, ip: bytes) -> Transport | None:
        size, following, source, destination = struct.unpack_from(">HBx16s16s", ip, 4)
        content, missing = (ip[40 : 40 + size], 40 + size - len(ip)) if size else (ip[40:], 0)
        for _ in range(_MAX_EXTENSION_HEADERS):
            if following in (TCP, UDP):
                hosts = inet_ntop(AF_INET6, source), inet_ntop(AF_INET6, destination)
                return _parse_transport(following, *hosts, content, missing)
            if following in _EXTENSION_HEADERS:
                following, content = content[0], content[(content[1] + 1) * 8 :]
            elif following == _AUTHENTICATION_HEADER:
                following, content = content[0], content[(content[1] + 2) * 4 :]
            elif following == _FRAGMENT_HEADER:
                following, place, identifier = struct.unpack_from(">BxHL", content)
                content = content[8:]
                if place & 0xFFF9:
                    fragment = Fragment((source, destination, 0, identifier), place >> 3, bool(place & 1))
                    joined = None if missing > 0 else self.fragments.add(fragment, content)
                    if joined is None:
                        return None
                    content, missing = joined, 0
            else:
                return None
        raise UnreadableFrame(f"an IPv6 packet with over {_MAX_EXTENSION_HEADERS} extension headers")


def _skip_link(link_type: int, frame: bytes) -> bytes | None:
    """Return the packet after the header of the link layer, ``None`` if it is not of IP."""
    if link_type == _ETHERNET:
        kind, at = int.from_bytes(frame[12:14]), 14
        while kind in _VLAN_TAGS and at < 30:
            kind, at = int.from_bytes(frame[at + 2 : at + 4]), at + 4
    elif link_type == _COOKED:
        kind, at = int.from_bytes(frame[14:16]), 16
    elif link_type == _COOKED_V2:
        kind, at = int.from_bytes(frame[:2]), 20
    elif link_type in (_NULL, _LOOP):
        # The family has the byte order and the number of the capturing system, of which AF_INET6 has many.
        kind, at = _IPV4 if 2 in (frame[0], frame[3]) else _IPV6, 4
    elif link_type in (*_RAW, _IPV4_ONLY, _IPV6_ONLY):
        kind, at = _IPV4 if frame[0] >> 4 == 4 else _IPV6, 0
    else:
        raise UnreadableFrame(f"link type {link_type}; known are Ethernet, Linux cooked, loopback and raw IP")
    if link_type in (_COOKED, _COOKED_V2) and kind in _VLAN_TAGS:
        kind, at = int.from_bytes(frame[at + 2 : at + 4]), at + 4
    if kind not in (_IPV4, _IPV6):
        return None
    packet = frame[at:]
    version = packet[0] >> 4
    if version not in (4, 6):
        raise UnreadableFrame(f"IP version {version}")
    return packet


def _parse_transport(protocol: int, source: str, destination: str, content: bytes, missing: int) -> Transport:
    missing = max(0, missing)
    if protocol == UDP:
        from_port, to_port, size = struct.unpack_from(">HHHxx", content)
        if not size:  # A burst over 64 KiB that the kernel hands to the network card to be segmented.
            size = len(content) + missing
        if size < 8:
            raise UnreadableFrame(f"a UDP datagram of {size} bytes")
        payload = content[8:size]
        missing = max(0, size - 8 - len(payload))
        return Transport(UDP, (source, from_port), (destination, to_port), payload, missing)
    from_port, to_port, sequence, acknowledged, offset, flags = struct.unpack_from(">HHLLBB6x", content)
    header = (offset >> 4) * 4
    if header < 20 or header > len(content):
        raise UnreadableFrame(f"a TCP header of {header} bytes")
    source_address, destination_address, payload = (source, from_port), (destination, to_port), content[header:]
    return Transport(TCP, source_address, destination_address, payload, missing, sequence, flags, acknowledged)
