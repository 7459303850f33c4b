"""Byte stream over short text messages, which may be lost but are not reordered.

Both ends of a session draw a random token, so that leftover messages of an earlier session are ignored. Fragments of
the stream are numbered. A missing fragment or any other error ends the session. There is no retransmission: the user
opens another session.

Messages, where MAC is present only with a secret:

- ``H1 OPEN mine yours MAC``: token of the sender, and the peer's token if known, else ``-``
- ``H1 OPENED mine yours MAC``: reply of an end whose session is open
- ``H1 number i/n base64 MAC``: fragment ``i`` of the ``n`` fragments of a bundle
- ``H1 OVER mine yours MAC``: end of the session
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter, deque
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

MAX_FRAGMENT = 240
"""Bytes of the stream in one message. They fit a NOTICE with any prefix that the server prepends."""
MAX_FRAGMENTS = 16
"""Largest number of fragments of a bundle."""
MAX_BUNDLES = 2**31
"""Largest number of bundles of a session."""
MAX_QUEUED = 1_048_576
"""Unsent bytes above which the session ends."""
TOKEN_SIZE = 12
"""Size of a token in bytes."""
MAC_SIZE = 12
"""Size of a MAC in bytes."""
OFFER_INTERVAL = 2.0
"""Seconds between repeated OPEN messages."""

_WORD = rb"[A-Za-z0-9_-]"
_OFFER = re.compile(rb"H1 (OPEN|OPENED|OVER) (%b{16}) (%b{16}|-)(?: (%b{16}))?" % (_WORD, _WORD, _WORD))
_DATA = re.compile(rb"H1 (0|[1-9][0-9]{0,9}) ([1-9][0-9]?)/([1-9][0-9]?) (%b{2,320})(?: (%b{16}))?" % (_WORD, _WORD))


class NoticeState(Enum):
    """State of a session."""

    OFFERED = "offered"
    OPEN = "open"
    OVER = "over"


class Fragment(NamedTuple):
    """One fragment of the stream."""

    bundle: int
    """Number of its bundle, from 0."""
    position: int
    """Position in the bundle, from 1."""
    total: int
    """Number of fragments of the bundle."""
    data: bytes


class NoticeOutput(NamedTuple):
    """Output of a session."""

    messages: list[bytes]
    """Messages to send."""
    data: bytes
    """Received bytes of the stream."""


def encode_fragment(fragment: Fragment, key: bytes | None) -> bytes:
    """Encode a fragment as a message."""
    text = b"H1 %d %d/%d %b" % (fragment.bundle, fragment.position, fragment.total, _encode_base64(fragment.data))
    return text if key is None else b"%b %b" % (text, _mac(key, text))


def decode_fragment(message: bytes, key: bytes | None) -> Fragment | None:
    """Decode a fragment; return ``None`` unless :func:`encode_fragment` would produce exactly this message."""
    found = _DATA.fullmatch(message)
    if found is None:
        return None
    data = _decode_base64(found[4])
    if data is None:
        return None
    piece = Fragment(int(found[1]), int(found[2]), int(found[3]), data)
    if not piece.position <= piece.total <= MAX_FRAGMENTS or not hmac.compare_digest(
        encode_fragment(piece, key), message
    ):
        return None
    return piece


class NoticeStream:
    """One end of a session.

    :param mine: name of this end, such as its nick.
    :param theirs: name of the peer.
    :param token: 12 random bytes.
    :param secret: shared secret; without one, any sender under the peer's name is trusted.
    :param other_secrets: secrets that the peer may use instead. Of two secrets that the ends begin with, both use the
        lower one.
    :param rate: messages per second.
    :param burst: messages sent at once after a pause.
    :param silence: seconds without a message of the peer after which the session ends.
    :ivar end_reason: reason for the end of the session.
    :ivar waiting: unsent bytes.
    """

    def __init__(
        self,
        mine: bytes,
        theirs: bytes,
        token: bytes,
        now: float,
        *,
        secret: bytes | None = None,
        other_secrets: Sequence[bytes] = (),
        rate: float = 1.0,
        burst: int = 4,
        silence: float = 30.0,
    ) -> None:
        assert len(token) == TOKEN_SIZE, "the token has a fixed size"
        self.state = NoticeState.OFFERED
        self.end_reason = ""
        self.waiting = 0
        self.counters: Counter[str] = Counter()
        self._mine, self._theirs = mine, theirs
        self._token = _encode_base64(token)
        self._peer_token = b"-"
        self._secret = secret
        self._other_secrets = tuple(other_secrets)
        self._rate = rate
        self._burst = burst
        self._silence = silence
        self._last_received_at = now
        self._offer_at = now
        self._offers: deque[bytes] = deque()
        """Control messages to be sent before any fragment."""
        self._keys: tuple[bytes, bytes] | None = None
        """MAC keys for fragments of this end and of the peer."""
        self._unbundled = bytearray()
        """Bytes of the stream that are not bundled yet."""
        self._fragments: deque[Fragment] = deque()
        """Unsent fragments of the current bundle."""
        self._number = 0
        self._expected = 0
        self._received_parts: list[bytes] = []
        """Received fragments of the expected bundle."""
        self._data: list[bytes] = []
        self._messages: list[bytes] = []
        self._credit = float(burst)
        self._credited_at = now
        self._closing = False

    # Interface

    def write(self, data: bytes, now: float) -> None:
        """Queue bytes until the session is open and the rate allows them."""
        if self.state is NoticeState.OVER or self._closing:
            return
        self._unbundled += data
        self.waiting += len(data)
        if self.waiting > MAX_QUEUED:
            self.end("too much unsent data", now)
        self.tick(now)

    def close(self, now: float) -> None:
        """End the session once all data is sent."""
        self._closing = True
        if self.state is NoticeState.OFFERED:
            self.end("closed here", now)
        self.tick(now)

    def end(self, reason: str, now: float) -> None:
        """End the session at once and tell the peer."""
        if self.state is NoticeState.OVER:
            return
        if self.state is NoticeState.OPEN:
            self._messages.append(self._encode_offer(b"OVER"))
        self._end_session(reason)

    def receive(self, message: bytes, now: float) -> None:
        """Handle a message of the peer."""
        if self.state is NoticeState.OVER or not message.startswith(b"H1 "):
            self.counters["foreign"] += 1
            return
        offer = _OFFER.fullmatch(message)
        if offer is not None:
            self._offer_received(message, offer[1], offer[2], offer[3], now)
        elif self.state is NoticeState.OPEN and self._keys is not None:
            piece = decode_fragment(message, self._keys[1] if self._secret is not None else None)
            if piece is None:
                self.counters["malformed"] += 1
                self.end("a message is malformed", now)
            else:
                self._last_received_at = now
                self._reassemble(piece, now)
        else:
            self.counters["early"] += 1
        self.tick(now)

    def tick(self, now: float) -> None:
        """Send what the rate allows, and handle timeouts."""
        if self.state is NoticeState.OVER:
            return
        if self.state is NoticeState.OPEN and now >= self._last_received_at + self._silence:
            self.end("silent", now)
            return
        if self.state is NoticeState.OFFERED and now >= self._offer_at:
            self._offer_at = now + OFFER_INTERVAL
            self._queue_offer(b"OPEN")
        self._send(now)
        if self._closing and not self._unsent():
            self.end("closed here", now)

    def next_deadline(self) -> float | None:
        """Return the time of the next :meth:`tick`."""
        if self.state is NoticeState.OVER:
            return None
        due = self._offer_at if self.state is NoticeState.OFFERED else self._last_received_at + self._silence
        if self._unsent():
            due = min(due, self._credited_at + max(0.0, 1.0 - self._credit) / self._rate)
        return due

    def drain(self) -> NoticeOutput:
        """Remove and return the output."""
        messages, self._messages = self._messages, []
        data, self._data = self._data, []
        return NoticeOutput(messages, b"".join(data))

    # Opening and closing

    def _offer_received(self, message: bytes, verb: bytes, other: bytes, own: bytes, now: float) -> None:
        text = b"H1 %b %b %b" % (verb, other, own)
        for secret in (self._secret, *self._other_secrets):
            if hmac.compare_digest(self._signed(text, self._theirs, self._mine, secret), message):
                break
        else:
            self.counters["unproved"] += 1
            return
        if self.state is NoticeState.OFFERED and secret is not None and self._secret is not None:
            if secret > self._secret:
                # The peer takes over the lower one.
                self._queue_offer(b"OPEN")
                return
            self._secret = secret
        known = own == self._token
        if verb == b"OVER":
            if self.state is NoticeState.OPEN and known and other == self._peer_token:
                self._end_session("closed")
        elif self.state is NoticeState.OPEN:
            if other != self._peer_token:
                self.end("the peer opened a new session", now)
            elif verb == b"OPEN":
                self._queue_offer(b"OPENED")
        elif known:
            self._peer_token = other
            self._open(now)
            if verb == b"OPEN":
                self._queue_offer(b"OPENED")
        elif verb == b"OPEN":
            self._peer_token = other
            self._queue_offer(b"OPEN")

    def _open(self, now: float) -> None:
        self.state = NoticeState.OPEN
        self._last_received_at = now
        self._offers.clear()
        if self._secret is None:
            self._keys = b"", b""
        else:
            self._keys = (
                hmac.digest(self._secret, b"hydra-irc-key\0" + self._token + self._peer_token, "sha256"),
                hmac.digest(self._secret, b"hydra-irc-key\0" + self._peer_token + self._token, "sha256"),
            )

    def _end_session(self, reason: str) -> None:
        self.state, self.end_reason = NoticeState.OVER, reason
        self._unbundled.clear()
        self._fragments.clear()
        self._offers.clear()
        self._received_parts.clear()
        self.waiting = 0

    def _queue_offer(self, verb: bytes) -> None:
        if verb not in self._offers:
            self._offers.append(verb)

    def _encode_offer(self, verb: bytes) -> bytes:
        text = b"H1 %b %b %b" % (verb, self._token, self._peer_token)
        return self._signed(text, self._mine, self._theirs, self._secret)

    @staticmethod
    def _signed(text: bytes, sender: bytes, receiver: bytes, secret: bytes | None) -> bytes:
        if secret is None:
            return text
        return b"%b %b" % (text, _mac(secret, b"hydra-irc-offer\0%b\0%b\0%b" % (sender, receiver, text)))

    # Sending

    def _unsent(self) -> bool:
        return bool(self._offers or (self.state is NoticeState.OPEN and (self._fragments or self._unbundled)))

    def _send(self, now: float) -> None:
        self._credit = min(float(self._burst), self._credit + max(0.0, now - self._credited_at) * self._rate)
        self._credited_at = now
        while self._credit >= 1 - 1e-9 and self._unsent():
            if self._offers:
                message = self._encode_offer(self._offers.popleft())
            else:
                if not self._fragments:
                    self._bundle()
                piece = self._fragments.popleft()
                self.waiting -= len(piece.data)
                key = self._keys[0] if self._keys is not None and self._secret is not None else None
                message = encode_fragment(piece, key)
            self._credit -= 1
            self._messages.append(message)
            if self._number > MAX_BUNDLES:
                self.end("the bundle numbers are exhausted", now)

    def _bundle(self) -> None:
        """Form a bundle: as many lines as fit one message, or one line in several fragments."""
        rest = self._unbundled
        if len(rest) <= MAX_FRAGMENT:
            size = len(rest)
        else:
            size = rest.rfind(b"\n", 0, MAX_FRAGMENT) + 1 or rest.find(b"\n", 0, MAX_FRAGMENTS * MAX_FRAGMENT) + 1
            size = size or min(len(rest), MAX_FRAGMENTS * MAX_FRAGMENT)
        data = bytes(rest[:size])
        del rest[:size]
        parts = [data[start : start + MAX_FRAGMENT] for start in range(0, size, MAX_FRAGMENT)]
        self._fragments += [Fragment(self._number, index, len(parts), part) for index, part in enumerate(parts, 1)]
        self._number += 1

    # Receiving

    def _reassemble(self, fragment: Fragment, now: float) -> None:
        whole = len(self._received_parts) + 1 == fragment.total
        if fragment.bundle != self._expected or fragment.position != len(self._received_parts) + 1:
            self.counters["gaps"] += 1
            self.end("a message is missing", now)
        elif not whole and len(fragment.data) != MAX_FRAGMENT:
            self.counters["malformed"] += 1
            self.end("a message is malformed", now)
        else:
            self._received_parts.append(fragment.data)
            if whole:
                self._data += self._received_parts
                self._received_parts.clear()
                self._expected += 1


def _mac(key: bytes, text: bytes) -> bytes:
    return _encode_base64(hmac.digest(key, text, "sha256")[:MAC_SIZE])


def _encode_base64(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _decode_base64(text: bytes) -> bytes | None:
    """Decode text; return ``None`` unless :func:`_encode_base64` would produce it."""
    if len(text) % 4 == 1:
        return None
    data = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    return data if _encode_base64(data) == text else None
