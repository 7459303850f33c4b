"""Invariant of the keys of messages, and the messages that test it."""

from __future__ import annotations

from typing import Any, ClassVar
from zlib import crc32

from fyrehose_twisted.fyrehose.events import MessagesDelivered
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import ClientInvariant
from fyrehose_twisted.fyrehose.wire.envelope import unwrap
from fyrehose_twisted.fyrehose.wire.message_key import KEY_MAGIC
from fyrehose_twisted.sim.host import Host


def key_of(data: bytes) -> bytes | None:
    """Return the key with which the scenario publishes ``data``: two of three messages have one."""
    checksum = crc32(data)
    return b"%d" % checksum * (1 + checksum % 20) if checksum % 3 else None


def framed(data: bytes) -> bytes:
    """Return the payload that a publisher sends for ``data``, by the documentation and not by the codec."""
    key = key_of(data)
    if key is not None:
        return KEY_MAGIC + bytes([len(key)]) + key + data
    return KEY_MAGIC + b"\0" + data if data.startswith(KEY_MAGIC) else data


class KeysDelivered(ClientInvariant):
    """A message is delivered with the key and the data that it was published with."""

    name: ClassVar[str] = "messages are delivered with their keys"

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if not isinstance(event, MessagesDelivered) or self.by_host[host].application.config.raw:
            return
        for message in event.messages:
            if unwrap(message.payload) is not None and message.key != key_of(message.data):
                self.violated(
                    f"{message.sequence} delivered with the key {message.key!r} and the data {message.data[:40]!r},"
                    " which was not published so",
                    host,
                )
