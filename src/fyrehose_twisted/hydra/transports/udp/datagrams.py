"""Datagrams of reliable streams between UDP addresses: their kinds, and what proves who sent them.

Who dials proves its address first: an INIT is answered with a COOKIE that this side does not remember, an OPEN that
brings it back with an ACCEPT; no answer is longer than what it answers. Each side has drawn a random id by then, to
which everything else is addressed. The first datagram that knows the id of the accepting side opens the session there.

Every datagram has a number of its own, by which it is seen to be new, and says what has arrived: up to where all, and
which of those behind. What carries a part of the stream, or its end, also has the number of that part, and is sent
again until it is known to have arrived. With a secret, 16 bytes at the end of each datagram prove that the sender has
it; those of an open session depend on both ids and on the direction.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct

MAX_DATAGRAM = 1_400
"""Bytes that a datagram has at most."""
WINDOW = 256
"""Parts of the stream that may be on their way: so many are kept on either side."""

INIT, COOKIE, OPEN, ACCEPT, REFUSE, DATA, FIN, ABORT, RESET = range(1, 10)
"""First byte of each kind of datagram."""

ID_SIZE, MAC_SIZE, INIT_SIZE = 8, 16, 40
"""Bytes of an id, of a proof, and of an INIT, which is as long as its answer."""
OPEN_BODY = Struct(">B8s16s8s")
ACCEPT_BODY = Struct(">B8s8s8s")
HEADER = Struct(">B8sQQQB")
"""Kind, id of the other side, number of the datagram, number of the part, up to where all have arrived, and bytes of
the mask of those behind."""
PAYLOAD = MAX_DATAGRAM - HEADER.size - WINDOW // 8 - MAC_SIZE
"""Bytes of the stream in one datagram."""

RandomBytes = Callable[[int], bytes]
"""Returns so many random bytes."""


class SessionKeys:
    """What proves that a datagram comes from somebody who has the secret.

    :param secret: without one, nothing is proved, and anybody may dial.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self.shared_key = None if secret is None else blake2b(secret, digest_size=32, person=b"hydra/udp").digest()

    def session_keys(self, dialler: bytes, acceptor: bytes) -> tuple[bytes | None, bytes | None]:
        """Return the key of the session that ``dialler`` has dialled, from there and from the other side."""
        if self.shared_key is None:
            return None, None
        there, back = (
            blake2b(way + dialler + acceptor, key=self.shared_key, digest_size=32).digest() for way in (b">", b"<")
        )
        return there, back


def sign(body: bytes, key: bytes | None) -> bytes:
    """Return a datagram with its proof."""
    return body if key is None else body + blake2b(body, key=key, digest_size=MAC_SIZE).digest()


def verify(datagram: bytes, key: bytes | None) -> bytes | None:
    """Return a datagram without its proof, ``None`` if that is wrong."""
    if key is None:
        return datagram
    body, proof = datagram[:-MAC_SIZE], datagram[-MAC_SIZE:]
    return body if compare_digest(blake2b(body, key=key, digest_size=MAC_SIZE).digest(), proof) else None
