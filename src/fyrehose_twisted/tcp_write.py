"""Writes to TCP sockets that do not wait for the reactor."""

from __future__ import annotations

from typing import Any

from twisted.internet.tcp import Connection


def write_at_once(transport: Any, data: bytes) -> None:
    """Write data to a TCP socket now if nothing waits to be written, otherwise as Twisted does.

    Twisted waits for the socket to become writable, which nearly always it is: a reactor turn and two calls of
    ``epoll_ctl`` for each write.
    """
    if (
        isinstance(transport, Connection)
        and transport.connected
        and not (transport.TLS or transport.disconnecting or transport.dataBuffer or transport._tempDataBuffer)
    ):
        written = transport.writeSomeData(data)
        if isinstance(written, int) and written:
            if written == len(data):
                return
            data = data[written:]
    transport.write(data)
