"""MACs of what a backbone sends: keyed BLAKE2s (RFC 7693) under a key derived from the shared secret."""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable
from hashlib import blake2s, sha256

from fyrehose_twisted.datagrams import DatagramRun
from fyrehose_twisted.effects import Burst, Datagram
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, encode_deliver
from fyrehose_twisted.fyrehose.wire.packets import (
    MAC_SIZE,
    MAX_DELIVERABLE,
    WITH_MAC,
    Deliver,
    KeepaliveAck,
    PacketType,
)
from fyrehose_twisted.fyrehose.wire.run_codec import split_delivers

STREAM_ID_SIZE = 16
"""Size of the id of a stream in bytes."""

MAX_WITH_MAC = MAX_DELIVERABLE - MAC_SIZE
"""Maximum size in bytes of DATA that a DELIVER with a MAC can carry over IPv4."""

_MAX_DATAGRAM = DATA_HEADER.size + MAX_WITH_MAC
_KEY_LABEL = b"fyrehose MAC of DELIVER\0"
_DELIVER, _ACK = b"DELIVER", b"ACK"
_DELIVER_TYPES = (PacketType.DELIVER, PacketType.FETCHED)
_WITH_MAC_TYPE = PacketType.DELIVER | WITH_MAC


def make_stream_id(stream: str) -> bytes:
    """Return the id of a stream, under which MACs of other streams with the same secret are wrong."""
    return sha256(stream.encode()).digest()[:STREAM_ID_SIZE]


class MacKey:
    """Key of the MACs of one stream.

    The key depends on the secret and the stream only, so every client of the stream makes the MAC of the backbone when
    it repairs another one. The type byte is not covered: the same MAC is right for a DELIVER and a FETCHED.

    :param secret: shared secret of the backbone and its clients.
    :param stream_id: see :func:`make_stream_id`.
    """

    __slots__ = ("_ack_hash", "_deliver_hash", "stream_id")

    def __init__(self, secret: bytes, stream_id: bytes) -> None:
        self.stream_id = stream_id
        # A token authenticates 20 or 32 bytes with the same secret, and this is neither.
        key = hmac.digest(secret, _KEY_LABEL + stream_id, "sha256")
        # A copy that has the key already takes two thirds of the time of a new one, for a message of 100 bytes.
        self._deliver_hash = blake2s(digest_size=MAC_SIZE, key=key, person=_DELIVER)
        self._ack_hash = blake2s(digest_size=MAC_SIZE, key=key, person=_ACK)

    def deliver_mac(self, sequence: int, data: Datagram) -> bytes:
        """Return the MAC of a message: over LENGTH, SEQUENCE and DATA."""
        return self._deliver_mac(memoryview(encode_deliver(sequence, data))[1:])

    def is_valid(self, deliver: Deliver) -> bool:
        """Return whether the MAC of ``deliver`` is right."""
        return hmac.compare_digest(self.deliver_mac(deliver.sequence, deliver.data), deliver.mac)

    def is_valid_ack(self, ack: KeepaliveAck) -> bool:
        """Return whether the MAC of ``ack`` is right."""
        return hmac.compare_digest(self.ack_mac(ack.token), ack.mac)

    def ack_mac(self, token: bytes) -> bytes:
        """Return the MAC of the KEEPALIVE-ACK with ``token``."""
        made = self._ack_hash.copy()
        made.update(token)
        return made.digest()

    def add_macs(self, datagrams: Iterable[Datagram | Burst]) -> list[Datagram | Burst]:
        """Return ``datagrams`` with a MAC in each DELIVER and FETCHED that has none. Other packets stay as they are.

        A DELIVER that would be too large for UDP over IPv4 is left out.
        """
        done: list[Datagram | Burst] = []
        for one in datagrams:
            if isinstance(one, Burst):
                if one.data[0] not in _DELIVER_TYPES:
                    done.append(one)
                elif one.size <= _MAX_DATAGRAM:
                    done.append(self._add_to_burst(one))
            elif one[0] not in _DELIVER_TYPES:
                done.append(one)
            elif len(one) <= _MAX_DATAGRAM:
                done.append(bytes((one[0] | WITH_MAC,)) + one[1:] + self._deliver_mac(memoryview(one)[1:]))
        return done

    def split_run(self, buffer: bytearray, run: DatagramRun) -> list[tuple[int, list[bytes]]] | None:
        """Return the DATA of a run of DELIVERs with MACs, as
        :func:`~fyrehose_twisted.fyrehose.wire.run_codec.split_delivers` does for those without.

        :return: ``None`` if anything in the run is no DELIVER with a MAC, or any MAC is wrong.
        """
        found = split_delivers(buffer, run, kind=_WITH_MAC_TYPE, trailer=MAC_SIZE)
        if found is None:
            return None
        start, stop, size, count, _, _ = run
        if count == 1:
            end = stop - MAC_SIZE
            return found if hmac.compare_digest(self._deliver_mac(buffer[start + 1 : end]), buffer[end:stop]) else None
        rows = struct.iter_unpack(f"x{size - 1 - MAC_SIZE}s{MAC_SIZE}s", memoryview(buffer)[start:stop])
        made, sent = list[bytes](), list[bytes]()
        copy = self._deliver_hash.copy
        for body, trailer in rows:
            mac = copy()
            mac.update(body)
            made.append(mac.digest())
            sent.append(trailer)
        return found if hmac.compare_digest(b"".join(made), b"".join(sent)) else None

    def _deliver_mac(self, body: Datagram) -> bytes:
        made = self._deliver_hash.copy()
        made.update(body)
        return made.digest()

    def _add_to_burst(self, burst: Burst) -> Burst:
        size, copy = burst.size, self._deliver_hash.copy
        kind = bytes((burst.data[0] | WITH_MAC,))
        parts: list[Datagram] = []
        for (body,) in struct.iter_unpack(f"x{size - 1}s", burst.data):
            mac = copy()
            mac.update(body)
            parts += (kind, body, mac.digest())
        return Burst(b"".join(parts), size + MAC_SIZE)
