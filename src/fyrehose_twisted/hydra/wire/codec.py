"""Messages on a stream (document 002): each is a line of words that ends with CR LF, and only with that.

A line that is no message becomes a :class:`~fyrehose_twisted.hydra.wire.messages.Malformed` that says why, and the link
goes on: what is done about it is the node's affair. RECV and SEND bring a line of IRC, which is kept as it is to the
last blank. Elsewhere any number of blanks stands between two words, and words too many are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError, MalformedPacket, RemoteError, UnencodableMessage
from fyrehose_twisted.hydra.wire.messages import (
    MAX_ID,
    MAX_LINE,
    MAX_REASON,
    MAX_TAG,
    MAX_TERM,
    MAX_VAL,
    Call,
    Drop,
    Elect,
    Hello,
    Keepalive,
    Knock,
    Malformed,
    Meet,
    Message,
    Nominate,
    Ping,
    Pledge,
    Pong,
    Recv,
    Send,
    Welcome,
)
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder

__all__ = ["MAX_PARTIAL_LINE", "MIN_TERM", "HydraCodec", "HydraDecoder"]

MAX_PARTIAL_LINE = 4_096
"""Bytes of a line that a decoder waits for; a longer one ends the connection."""
MIN_TERM = -(2**31)
"""The lowest term of a PING. Ours begin with 1, but the reference's may be anything."""
MAX_COUNT = 2**31
"""The most relays that a PONG is read with. More can be written, so that whatever was read can be passed on."""
MAX_EXCERPT = 80
"""Bytes of a bad line that are kept."""

_KEEPALIVE = Keepalive()
_IRC_LINE_MESSAGE = re.compile(rb"\s*(?:RECV|SEND)\s+(\S+)\s(.+)", re.DOTALL)
_BLANKS = re.compile(rb"[\0\s]")


class BadLine(Exception):
    """Why a line is no message. Never leaves this module."""


@implementer(IStreamCodec)
class HydraCodec:
    """How the messages of :mod:`~fyrehose_twisted.hydra.wire.messages` travel.

    :ivar limit: bytes that a line may have, without CR LF.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        if not 0 < limit <= MAX_PARTIAL_LINE:
            raise ConfigurationError(f"a limit of {limit} bytes is outside 1 to {MAX_PARTIAL_LINE:,}")
        self.limit = limit

    def encode(self, message: Message) -> bytes:
        """Return the line of ``message``, with CR LF.

        :raises UnencodableMessage: if a field is out of its range, or the line would be too long.
        """
        if type(message) is Recv or type(message) is Send:
            number, line = message
            if b"\r" in line or b"\n" in line or b"\0" in line or not line:
                raise UnencodableMessage(f"{line[:MAX_EXCERPT]!r} is not one line")
            if type(message) is Recv:
                if not 0 <= number <= MAX_TERM:
                    raise UnencodableMessage(f"a line cannot have the number {number}")
                data = b"RECV %d %b\r\n" % (number, line)
            else:
                if not 0 < number <= MAX_ID:
                    raise UnencodableMessage(f"a node cannot have the id {number}")
                data = b"SEND %d %b\r\n" % (number, line)
        elif isinstance(message, Keepalive):
            return b"\r\n"
        else:
            try:
                command, writers = _WRITERS[type(message)]
            except KeyError:
                raise UnencodableMessage(f"a {type(message).__name__} is not sent") from None
            words = [write(field) for write, field in zip(writers, message, strict=True)]
            data = b" ".join((command, *filter(None, words))) + b"\r\n"
        if len(data) - 2 > self.limit:
            raise UnencodableMessage(f"a line of {len(data) - 2:,} bytes is over the limit of {self.limit:,}")
        return data

    def decoder(self) -> HydraDecoder:
        """Return what takes the bytes of one connection apart."""
        return HydraDecoder(self.limit)


@implementer(IStreamDecoder)
class HydraDecoder:
    """See :class:`~fyrehose_twisted.interfaces.IStreamDecoder`. Between two calls it holds part of one line.

    If a line without an end comes behind others, the others are returned, and the next call raises.

    :param limit: bytes that a line may have, without CR LF; a longer one is malformed.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit = limit
        self._rest = b""
        self._error: RemoteError | None = None

    @property
    def waiting(self) -> int:
        """Bytes that came of a line which is not complete."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete now.

        :raises MalformedPacket: if a line does not end; from then on, always.
        """
        if self._error is not None:
            raise self._error
        if self._rest:
            data = self._rest + data
        lines: list[bytes] = data.split(b"\r\n")
        self._rest = rest = lines.pop()
        count = len(lines)
        # If all is well, one look at everything spares one at each line.
        plain = data.count(b"\n") == count and b"\0" not in data
        plain = plain and data.count(b"\r") == (count + rest.count(b"\r") if rest else count)
        limit = self.limit if plain else -1
        new: Callable[..., Message] = tuple.__new__  # Half the price of a call of the class.
        found: list[Message] = []
        for line in lines:
            if len(line) <= limit:
                # Exactly one blank each, and a number of usual length: nearly all lines are like this.
                words = line.split(b" ", 2)
                if len(words) == 3:
                    command, number, text = words
                    if text and number.isdigit() and len(number) < 19:
                        if command == b"RECV":
                            found.append(new(Recv, (int(number), text)))
                            continue
                        if command == b"SEND" and 0 < (node := int(number)) <= MAX_ID:
                            found.append(new(Send, (node, text)))
                            continue
            elif len(line) > MAX_PARTIAL_LINE:
                return self._fail(found)
            found.append(self._read(line))
        # A CR at the end may be the first half of CR LF.
        if rest and len(rest) > MAX_PARTIAL_LINE and (len(rest) > MAX_PARTIAL_LINE + 1 or not rest.endswith(b"\r")):
            return self._fail(found)
        return found

    def _fail(self, found: list[Message]) -> list[Message]:
        self._rest = b""
        self._error = MalformedPacket("overlong-line", f"a line has more than {MAX_PARTIAL_LINE:,} bytes")
        if not found:
            raise self._error
        return found

    def _read(self, line: bytes) -> Message:
        try:
            if len(line) > self.limit:
                raise BadLine("overlong-line")
            if b"\r" in line or b"\n" in line or b"\0" in line:
                raise BadLine("control-character")
            return _read_line(line)
        except BadLine as problem:
            return Malformed(str(problem), line[:MAX_EXCERPT])


def _read_line(line: bytes) -> Message:
    words = line.split()
    if not words:
        return _KEEPALIVE
    command = words[0]
    if command == b"RECV" or command == b"SEND":
        parts = _IRC_LINE_MESSAGE.fullmatch(line)
        if parts is None:
            raise BadLine("missing-field")
        number, text = parts.groups()
        return Recv(_read_number(number), text) if command == b"RECV" else Send(_read_id(number), text)
    try:
        kind, readers, last = _READERS[command]
    except KeyError:
        raise BadLine("unknown-command") from None
    if len(words) <= len(readers):
        raise BadLine("missing-field")
    fields: list[Any] = [read(word) for read, word in zip(readers, words[1:], strict=False)]
    if last is not None:
        *_, rest = (*line.split(None, len(readers) + 1), b"")[: len(readers) + 2]
        fields.append(last(rest))
    message: Message = kind(*fields)
    return message


# How fields are read


def _integer(word: bytes, reason: str) -> int:
    if not word.removeprefix(b"-").isdigit():
        raise BadLine(reason)
    return int(word)


def _read_id(word: bytes) -> int:
    node = _integer(word, "bad-id")
    if not 0 < node <= MAX_ID:
        raise BadLine("bad-id")
    return node


def _read_term(word: bytes) -> int:
    term = _integer(word, "bad-term")
    if not 0 <= term <= MAX_TERM:
        raise BadLine("bad-term")
    return term


def _read_any_term(word: bytes) -> int:
    term = _integer(word, "bad-term")
    if not MIN_TERM <= term <= MAX_TERM:
        raise BadLine("bad-term")
    return term


def _read_number(word: bytes) -> int:
    number = _integer(word, "bad-number")
    if not 0 <= number <= MAX_TERM:
        raise BadLine("bad-number")
    return number


def _read_count(word: bytes) -> int:
    count = _integer(word, "bad-count")
    if not 0 <= count <= MAX_COUNT:
        raise BadLine("bad-count")
    return count


def _read_val(word: bytes) -> str:
    if len(word) > MAX_VAL:
        raise BadLine("bad-val")
    return word.decode("utf-8", "surrogateescape")


# What only people read is cut rather than refused: a PONG without its tag, or a DROP without its reason, still counts.


def _read_tag(rest: bytes) -> str:
    word = (*rest.split(None, 1), b"")[0]
    return word[:MAX_TAG].decode("utf-8", "surrogateescape")


def _read_reason(rest: bytes) -> str:
    return rest[:MAX_REASON].strip().decode("utf-8", "surrogateescape")


# How they are written


def _write_id(node: int) -> bytes:
    if not 0 < node <= MAX_ID:
        raise UnencodableMessage(f"a node cannot have the id {node}")
    return b"%d" % node


def _write_term(term: int) -> bytes:
    if not 0 <= term <= MAX_TERM:
        raise UnencodableMessage(f"there is no term {term}")
    return b"%d" % term


def _write_any_term(term: int) -> bytes:
    if not MIN_TERM <= term <= MAX_TERM:
        raise UnencodableMessage(f"there is no term {term}")
    return b"%d" % term


def _write_count(count: int) -> bytes:
    if not 0 <= count <= MAX_ID:
        raise UnencodableMessage(f"a message cannot have been relayed {count} times")
    return b"%d" % count


def _write_val(val: str) -> bytes:
    word = _encode_text(val)
    if not 0 < len(word) <= MAX_VAL or _BLANKS.search(word):
        raise UnencodableMessage(f"val {val[:MAX_EXCERPT]!r} is not one word of 1 to {MAX_VAL} bytes")
    return word


def _write_tag(tag: str) -> bytes:
    word = _encode_text(tag)
    if len(word) > MAX_TAG or _BLANKS.search(word):
        raise UnencodableMessage(f"tag {tag[:MAX_EXCERPT]!r} is not one word of {MAX_TAG} bytes at most")
    return word


def _write_reason(reason: str) -> bytes:
    text = _encode_text(reason)
    if len(text) > MAX_REASON or b"\r" in text or b"\n" in text or b"\0" in text:
        raise UnencodableMessage(f"reason {reason[:MAX_EXCERPT]!r} is not one line of {MAX_REASON} bytes at most")
    return text.strip()


def _encode_text(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UnencodableMessage(f"{text[:MAX_EXCERPT]!r} is not UTF-8") from None


_READERS: dict[bytes, tuple[Callable[..., Any], tuple[Callable[[bytes], Any], ...], Callable[[bytes], str] | None]] = {
    b"PING": (Ping, (_read_any_term, _read_val, _read_id), None),
    b"PONG": (Pong, (_read_val, _read_id, _read_count), _read_tag),
    b"DROP": (Drop, (_read_id,), _read_reason),
    b"NOMINATE": (Nominate, (_read_term, _read_id), None),
    b"PLEDGE": (Pledge, (_read_term, _read_id, _read_id), None),
    b"CALL": (Call, (_read_term,), None),
    b"ELECT": (Elect, (_read_term, _read_id, _read_id), None),
    b"KNOCK": (Knock, (_read_id,), _read_tag),
    b"MEET": (Meet, (_read_id, _read_id), None),
    b"WELCOME": (Welcome, (_read_id,), None),
    b"HELLO": (Hello, (_read_id, _read_id), None),
}
"""By the first word: what it makes, of which words, and what reads the rest of the line if there may be one."""

_WRITERS: dict[type, tuple[bytes, tuple[Callable[[Any], bytes], ...]]] = {
    Ping: (b"PING", (_write_any_term, _write_val, _write_id)),
    Pong: (b"PONG", (_write_val, _write_id, _write_count, _write_tag)),
    Drop: (b"DROP", (_write_id, _write_reason)),
    Nominate: (b"NOMINATE", (_write_term, _write_id)),
    Pledge: (b"PLEDGE", (_write_term, _write_id, _write_id)),
    Call: (b"CALL", (_write_term,)),
    Elect: (b"ELECT", (_write_term, _write_id, _write_id)),
    Knock: (b"KNOCK", (_write_id, _write_tag)),
    Meet: (b"MEET", (_write_id, _write_id)),
    Welcome: (b"WELCOME", (_write_id,)),
    Hello: (b"HELLO", (_write_id, _write_id)),
}
