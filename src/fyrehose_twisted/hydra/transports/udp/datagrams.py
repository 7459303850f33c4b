"""Datagrams of reliable streams between UDP addresses: kinds, layout and authentication.

The dialler first proves its address. An INIT is answered with a COOKIE, for which the acceptor keeps no state; an OPEN
that returns the cookie is answered with an ACCEPT. No answer is longer than its request. Each side draws a random
session id, to which later datagrams are addressed. The first datagram with the acceptor's id opens the session there.

Every datagram has a unique number, which reveals duplicates, and acknowledges received segments: a cumulative sequence
number, and a mask of those after the first gap. A datagram that carries a segment of the stream, or its end, also has
its sequence number, and the segment is retransmitted until acknowledged. With a secret, 16 bytes at the end of each
datagram authenticate it; those of an open session depend on both ids and on the direction.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct

MAX_DATAGRAM = 1_400
"""Largest datagram in bytes."""
WINDOW = 256
"""Largest number of outstanding segments, and of segments in a reorder buffer."""

INIT, COOKIE, OPEN, ACCEPT, REFUSE, DATA, FIN, ABORT, RESET = range(1, 10)
"""First byte of each kind of datagram."""

ID_SIZE, MAC_SIZE, INIT_SIZE = 8, 16, 40
"""Bytes of a session id, of a MAC, and of an INIT, which is padded to the size of its answer."""
OPEN_BODY = Struct(">B8s16s8s")
ACCEPT_BODY = Struct(">B8s8s8s")
HEADER = Struct(">B8sQQQB")
"""Kind, session id of the receiver, datagram number, sequence number, cumulative acknowledgement, and size of the
acknowledgement mask in bytes."""
PAYLOAD = MAX_DATAGRAM - HEADER.size - WINDOW // 8 - MAC_SIZE
"""Largest segment in bytes."""

RandomBytes = Callable[[int], bytes]
"""Source of a given number of random bytes."""


class SessionKeys:
    """MAC keys derived from the shared secret.

    :param secret: shared secret; without one, datagrams are not authenticated.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self.shared_key = None if secret is None else blake2b(secret, digest_size=32, person=b"hydra/udp").digest()

    def session_keys(self, dialler: bytes, acceptor: bytes) -> tuple[bytes | None, bytes | None]:
        """Return the keys of a session: for datagrams of the dialler, and of the acceptor."""
        if self.shared_key is None:
            return None, None
        there, back = (
            blake2b(way + dialler + acceptor, key=self.shared_key, digest_size=32).digest() for way in (b">", b"<")
        )
        return there, back


def sign(body: bytes, key: bytes | None) -> bytes:
    """Return a datagram with its MAC."""
    return body if key is None else body + blake2b(body, key=key, digest_size=MAC_SIZE).digest()


def verify(datagram: bytes, key: bytes | None) -> bytes | None:
    """Return a datagram without its MAC, ``None`` if the MAC is wrong."""
    if key is None:
        return datagram
    body, proof = datagram[:-MAC_SIZE], datagram[-MAC_SIZE:]
    return body if compare_digest(blake2b(body, key=key, digest_size=MAC_SIZE).digest(), proof) else None
