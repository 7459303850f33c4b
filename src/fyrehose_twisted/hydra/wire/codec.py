"""Codec of messages on a stream (document 002). Each message is a line of words terminated by CR LF.

An invalid line is decoded as :class:`~fyrehose_twisted.hydra.wire.messages.Malformed` with a reason; the node decides
whether to close the link. The IRC line of a RECV or SEND is kept verbatim, including trailing blanks. In other messages
any number of blanks separates two words, and excess words are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from zope.interface import classImplements

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
"""Bytes of an unterminated line that a decoder buffers. A longer one ends the connection."""
MIN_TERM = -(2**31)
"""Lowest term of a PING. Ours start at 1; the reference implementation sends any number."""
MAX_COUNT = 2**31
"""Highest relay count that is decoded in a PONG. Encoding allows more, so that every decoded PONG can be relayed."""
MAX_EXCERPT = 80
"""Bytes of a malformed line that are kept."""

_KEEPALIVE = Keepalive()
_IRC_LINE_MESSAGE = re.compile(rb"\s*(?:RECV|SEND)\s+(\S+)\s(.+)", re.DOTALL)
_BLANKS = re.compile(rb"[\0\s]")


class BadLine(Exception):
    """A line is malformed. Internal to this module."""


class HydraDecoder:
    """Implementation of :class:`~fyrehose_twisted.interfaces.IStreamDecoder` that buffers at most one partial line.

    If an overlong unterminated line follows complete lines, these are returned and the next call raises.

    :param limit: largest line in bytes, without CR LF; a longer one is malformed.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit = limit
        self._rest = b""
        self._error: RemoteError | None = None

    @property
    def waiting(self) -> int:
        """Bytes of the buffered partial line."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that ``data`` completes.

        :raises MalformedPacket: if an unterminated line is too long; every later call raises too.
        """
        if self._error is not None:
            raise self._error
        if self._rest:
            data = self._rest + data
        lines: list[bytes] = data.split(b"\r\n")
        self._rest = rest = lines.pop()
        count = len(lines)
        # One check of all data replaces a check of each line in the usual case.
        plain = data.count(b"\n") == count and b"\0" not in data
        plain = plain and data.count(b"\r") == (count + rest.count(b"\r") if rest else count)
        limit = self.limit if plain else -1
        new: Callable[..., Message] = tuple.__new__  # Half the cost of calling the class.
        found: list[Message] = []
        for line in lines:
            if len(line) <= limit:
                # Fast path for nearly all lines: single blanks and a number of usual length.
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
        # A final CR may be the first half of CR LF.
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


classImplements(HydraDecoder, IStreamDecoder)


class HydraCodec:
    """Codec for the messages of :mod:`~fyrehose_twisted.hydra.wire.messages`.

    :ivar limit: largest line in bytes, without CR LF.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        if not 0 < limit <= MAX_PARTIAL_LINE:
            raise ConfigurationError(f"line limit {limit} is not between 1 and {MAX_PARTIAL_LINE:,} bytes")
        self.limit = limit

    def encode(self, message: Message) -> bytes:
        """Return ``message`` as a line with CR LF.

        :raises UnencodableMessage: if a field is out of range, or the line exceeds the limit.
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
        """Return a decoder for one connection."""
        return HydraDecoder(self.limit)


classImplements(HydraCodec, IStreamCodec)


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


# Decoders of fields


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


# Text for people is truncated, not refused: a PONG without its tag and a DROP without its reason are still valid.


def _read_tag(rest: bytes) -> str:
    word = (*rest.split(None, 1), b"")[0]
    return word[:MAX_TAG].decode("utf-8", "surrogateescape")


def _read_reason(rest: bytes) -> str:
    return rest[:MAX_REASON].strip().decode("utf-8", "surrogateescape")


# Encoders of fields


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
"""Message class, decoders of its words, and decoder of the rest of the line if any, by command."""

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
