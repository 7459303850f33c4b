"""IPv4 addresses in packets: ADDR and PORT."""

from __future__ import annotations

from socket import AF_INET, inet_pton

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import UnencodableMessage


def pack_address(address: Address) -> tuple[bytes, int]:
    """Return ADDR and PORT of ``address``. :raises UnencodableMessage: if it is not an IPv4 address and a port."""
    host, port = address
    if not 0 <= port <= 65_535:
        raise UnencodableMessage(f"port {port} is outside 0..65535")
    try:
        return inet_pton(AF_INET, host), port
    except (OSError, ValueError):  # inet_aton would also take "127.1"
        raise UnencodableMessage(f"{host!r} is not an IPv4 address in dotted form") from None
