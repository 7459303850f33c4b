"""A stream of bytes in messages of a few hundred characters each, which may be lost but do not overtake one another.

A session has a random token of each end, so that neither takes what is left of an earlier one for its own. Pieces of
the stream are numbered; where one is missing, or anything else is not as it should be, the session is over. It does not
send again what was lost: whoever uses it opens another session.

The messages, in which MAC is only there with a secret:

- ``H1 OPEN mine yours MAC``: a token of whoever sends it, and the one that it has seen from the other end, or ``-``
- ``H1 OPENED mine yours MAC``: the answer of an end for which the session is open
- ``H1 number i/n base64 MAC``: piece ``i`` of the ``n`` of a bundle
- ``H1 OVER mine yours MAC``: the session is over
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter, deque
from enum import Enum
from typing import NamedTuple

MAX_PIECE = 240
"""Bytes of the stream in one message: what fits a NOTICE whatever the server puts in front."""
MAX_PIECES = 16
"""Pieces of one bundle."""
MAX_NUMBER = 2**31
"""Bundles of one session."""
MAX_WAITING = 1_048_576
"""Bytes that may wait to be sent; then the session is over."""
TOKEN = 12
"""Bytes of a token."""
MAC = 12
"""Bytes of a MAC."""
AGAIN = 2.0
"""Seconds until an end that was not answered offers the session again."""

_WORD = rb"[A-Za-z0-9_-]"
_OFFER = re.compile(rb"H1 (OPEN|OPENED|OVER) (%b{16}) (%b{16}|-)(?: (%b{16}))?" % (_WORD, _WORD, _WORD))
_DATA = re.compile(rb"H1 (0|[1-9][0-9]{0,9}) ([1-9][0-9]?)/([1-9][0-9]?) (%b{2,320})(?: (%b{16}))?" % (_WORD, _WORD))


class Stage(Enum):
    """How far a session is."""

    OFFERED = "offered"
    OPEN = "open"
    OVER = "over"


class Piece(NamedTuple):
    """A part of the stream."""

    number: int
    """Of its bundle, from 0."""
    place: int
    """In the bundle, from 1."""
    pieces: int
    """Of the bundle."""
    data: bytes


class Output(NamedTuple):
    """What a session wants done."""

    messages: list[bytes]
    """To be sent."""
    data: bytes
    """Came from the other end."""


def encode_piece(piece: Piece, key: bytes | None) -> bytes:
    """Return the message of a piece."""
    text = b"H1 %d %d/%d %b" % (piece.number, piece.place, piece.pieces, _to_text(piece.data))
    return text if key is None else b"%b %b" % (text, _mac(key, text))


def decode_piece(message: bytes, key: bytes | None) -> Piece | None:
    """Return the piece in a message; ``None`` if there is none, or not exactly as :func:`encode_piece` makes it."""
    found = _DATA.fullmatch(message)
    if found is None:
        return None
    data = _from_text(found[4])
    if data is None:
        return None
    piece = Piece(int(found[1]), int(found[2]), int(found[3]), data)
    if not piece.place <= piece.pieces <= MAX_PIECES or not hmac.compare_digest(encode_piece(piece, key), message):
        return None
    return piece


class FragmentSession:
    """One end of a session.

    :param mine: name of this end, such as its nick.
    :param theirs: name of the other end.
    :param token: 12 random bytes.
    :param secret: what both ends know; without one, whoever can send under the name of the other end is believed.
    :param rate: messages a second.
    :param burst: messages that may go at once after a pause.
    :param silence: seconds without a message of the other end that end the session.
    :ivar why: why it is over.
    :ivar waiting: bytes that wait to be sent.
    """

    def __init__(
        self,
        mine: bytes,
        theirs: bytes,
        token: bytes,
        now: float,
        *,
        secret: bytes | None = None,
        rate: float = 1.0,
        burst: int = 4,
        silence: float = 30.0,
    ) -> None:
        assert len(token) == TOKEN, "tokens have a size"
        self.stage = Stage.OFFERED
        self.why = ""
        self.waiting = 0
        self.counts: Counter[str] = Counter()
        self._mine, self._theirs = mine, theirs
        self._token = _to_text(token)
        self._other = b"-"
        self._secret = secret
        self._rate = rate
        self._burst = burst
        self._silence = silence
        self._heard_at = now
        self._offer_at = now
        self._offers: deque[bytes] = deque()
        """Words to be sent, before any piece."""
        self._keys: tuple[bytes, bytes] | None = None
        """For pieces of ours, and of the other end."""
        self._rest = bytearray()
        """Bytes of the stream that are in no bundle yet."""
        self._pieces: deque[Piece] = deque()
        """What is left of a bundle that has been begun."""
        self._number = 0
        self._expected = 0
        self._parts: list[bytes] = []
        """What has come of the bundle that is expected."""
        self._data: list[bytes] = []
        self._messages: list[bytes] = []
        self._tokens = float(burst)
        self._filled_at = now
        self._closing = False

    # What its owner calls

    def write(self, data: bytes, now: float) -> None:
        """Send bytes; they wait until the session is open and the rate lets them go."""
        if self.stage is Stage.OVER or self._closing:
            return
        self._rest += data
        self.waiting += len(data)
        if self.waiting > MAX_WAITING:
            self.end("too much waits", now)
        self.tick(now)

    def finish(self, now: float) -> None:
        """End it once everything that waits has been sent."""
        self._closing = True
        if self.stage is Stage.OFFERED:
            self.end("closed here", now)
        self.tick(now)

    def end(self, why: str, now: float) -> None:
        """End it now, and tell the other end."""
        if self.stage is Stage.OVER:
            return
        if self.stage is Stage.OPEN:
            self._messages.append(self._offer(b"OVER"))
        self._over(why)

    def receive(self, message: bytes, now: float) -> None:
        """A message of the other end has come."""
        if self.stage is Stage.OVER or not message.startswith(b"H1 "):
            self.counts["foreign"] += 1
            return
        offer = _OFFER.fullmatch(message)
        if offer is not None:
            self._offered(message, offer[1], offer[2], offer[3], now)
        elif self.stage is Stage.OPEN and self._keys is not None:
            piece = decode_piece(message, self._keys[1] if self._secret is not None else None)
            if piece is None:
                self.counts["malformed"] += 1
                self.end("a message is malformed", now)
            else:
                self._heard_at = now
                self._put_together(piece, now)
        else:
            self.counts["early"] += 1
        self.tick(now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.stage is Stage.OVER:
            return
        if self.stage is Stage.OPEN and now >= self._heard_at + self._silence:
            self.end("silent", now)
            return
        if self.stage is Stage.OFFERED and now >= self._offer_at:
            self._offer_at = now + AGAIN
            self._say(b"OPEN")
        self._send(now)
        if self._closing and not self._unsent():
            self.end("closed here", now)

    def next_deadline(self) -> float | None:
        """Return when :meth:`tick` has something to do."""
        if self.stage is Stage.OVER:
            return None
        due = self._offer_at if self.stage is Stage.OFFERED else self._heard_at + self._silence
        if self._unsent():
            due = min(due, self._filled_at + max(0.0, 1.0 - self._tokens) / self._rate)
        return due

    def drain(self) -> Output:
        """Take what is to be sent and what has come."""
        messages, self._messages = self._messages, []
        data, self._data = self._data, []
        return Output(messages, b"".join(data))

    # The beginning and the end

    def _offered(self, message: bytes, verb: bytes, other: bytes, own: bytes, now: float) -> None:
        if not hmac.compare_digest(
            self._signed(b"H1 %b %b %b" % (verb, other, own), self._theirs, self._mine), message
        ):
            self.counts["unproved"] += 1
            return
        known = own == self._token
        if verb == b"OVER":
            if self.stage is Stage.OPEN and known and other == self._other:
                self._over("closed")
        elif self.stage is Stage.OPEN:
            if other != self._other:
                self.end("the other end began again", now)
            elif verb == b"OPEN":
                self._say(b"OPENED")
        elif known:
            self._other = other
            self._open(now)
            if verb == b"OPEN":
                self._say(b"OPENED")
        elif verb == b"OPEN":
            self._other = other
            self._say(b"OPEN")

    def _open(self, now: float) -> None:
        self.stage = Stage.OPEN
        self._heard_at = now
        self._offers.clear()
        if self._secret is None:
            self._keys = b"", b""
        else:
            self._keys = (
                hmac.digest(self._secret, b"hydra-irc-key\0" + self._token + self._other, "sha256"),
                hmac.digest(self._secret, b"hydra-irc-key\0" + self._other + self._token, "sha256"),
            )

    def _over(self, why: str) -> None:
        self.stage, self.why = Stage.OVER, why
        self._rest.clear()
        self._pieces.clear()
        self._offers.clear()
        self._parts.clear()
        self.waiting = 0

    def _say(self, verb: bytes) -> None:
        if verb not in self._offers:
            self._offers.append(verb)

    def _offer(self, verb: bytes) -> bytes:
        return self._signed(b"H1 %b %b %b" % (verb, self._token, self._other), self._mine, self._theirs)

    def _signed(self, text: bytes, sender: bytes, receiver: bytes) -> bytes:
        if self._secret is None:
            return text
        return b"%b %b" % (text, _mac(self._secret, b"hydra-irc-offer\0%b\0%b\0%b" % (sender, receiver, text)))

    # Out

    def _unsent(self) -> bool:
        return bool(self._offers or (self.stage is Stage.OPEN and (self._pieces or self._rest)))

    def _send(self, now: float) -> None:
        self._tokens = min(float(self._burst), self._tokens + max(0.0, now - self._filled_at) * self._rate)
        self._filled_at = now
        while self._tokens >= 1 - 1e-9 and self._unsent():
            if self._offers:
                message = self._offer(self._offers.popleft())
            else:
                if not self._pieces:
                    self._bundle()
                piece = self._pieces.popleft()
                self.waiting -= len(piece.data)
                key = self._keys[0] if self._keys is not None and self._secret is not None else None
                message = encode_piece(piece, key)
            self._tokens -= 1
            self._messages.append(message)
            if self._number > MAX_NUMBER:
                self.end("no number is left", now)

    def _bundle(self) -> None:
        """Cut off what goes together: as many lines as fit one message, or one line that needs more of them."""
        rest = self._rest
        if len(rest) <= MAX_PIECE:
            size = len(rest)
        else:
            size = rest.rfind(b"\n", 0, MAX_PIECE) + 1 or rest.find(b"\n", 0, MAX_PIECES * MAX_PIECE) + 1
            size = size or min(len(rest), MAX_PIECES * MAX_PIECE)
        data = bytes(rest[:size])
        del rest[:size]
        parts = [data[start : start + MAX_PIECE] for start in range(0, size, MAX_PIECE)]
        self._pieces += [Piece(self._number, index, len(parts), part) for index, part in enumerate(parts, 1)]
        self._number += 1

    # In

    def _put_together(self, piece: Piece, now: float) -> None:
        whole = len(self._parts) + 1 == piece.pieces
        if piece.number != self._expected or piece.place != len(self._parts) + 1:
            self.counts["gaps"] += 1
            self.end("a message is missing", now)
        elif not whole and len(piece.data) != MAX_PIECE:
            self.counts["malformed"] += 1
            self.end("a message is malformed", now)
        else:
            self._parts.append(piece.data)
            if whole:
                self._data += self._parts
                self._parts.clear()
                self._expected += 1


def _mac(key: bytes, text: bytes) -> bytes:
    return _to_text(hmac.digest(key, text, "sha256")[:MAC])


def _to_text(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _from_text(text: bytes) -> bytes | None:
    """Return the bytes; ``None`` if it is not what :func:`_to_text` makes of them."""
    if len(text) % 4 == 1:
        return None
    data = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    return data if _to_text(data) == text else None
