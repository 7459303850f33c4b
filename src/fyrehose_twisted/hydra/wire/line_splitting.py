"""Splitting of messages that exceed the IRC line limit once the server has prepended their sender."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.wire.messages import MAX_IRC

_MAX_USER = 10
"""Longest user name in bytes, as truncated by servers, including the tilde they prepend."""
_MAX_HOST = 63
"""Longest host name in bytes, as truncated by servers."""
_MIN_PART = 16
"""Smallest part of a split message in bytes."""
MAX_PARTS = MAX_IRC // (_MIN_PART // 2)
"""Largest number of lines of a split message."""
_MESSAGE_COMMANDS = frozenset((b"PRIVMSG", b"NOTICE"))
_CTCP_DELIMITER = b"\x01"
"""First and last byte of a CTCP message such as ACTION."""


class IrcLimits(NamedTuple):
    """Limits of a server in bytes (RPL_ISUPPORT); ``None`` where it announces none.

    :ivar line: LINELEN, including CR LF and the prepended sender.
    :ivar topic: TOPICLEN.
    :ivar kick: KICKLEN.
    """

    line: int = MAX_IRC + 2
    topic: int | None = None
    kick: int | None = None


def max_line_length(prefix: bytes, limits: IrcLimits) -> int:
    """Return the largest line in bytes, without CR LF, that the server relays without truncation.

    :param prefix: ``nick!user@host`` as far as known; unknown parts count with their largest length.
    """
    nick, mark, rest = prefix.partition(b"!")
    sender = len(prefix) if mark and b"@" in rest else len(nick) + 2 + _MAX_USER + _MAX_HOST
    return limits.line - 2 - len(b": ") - sender


def split_to_fit(line: bytes, prefix: bytes, limits: IrcLimits, *, split: bool) -> list[bytes]:
    """Return the lines in which a line is sent to IRC.

    A message is split between words where possible, else between characters.

    :param prefix: ``nick!user@host`` of the sender.
    :param split: whether a message may be split.
    :raises UnencodableMessage: if the server would truncate the line.
    """
    room = max_line_length(prefix, limits)
    head, colon, text = line.partition(b" :")
    command = head.partition(b" ")[0]
    text_limit = {b"TOPIC": limits.topic, b"KICK": limits.kick}.get(command)
    if text_limit is not None and len(text) > text_limit:
        raise UnencodableMessage(f"the text of a {command.decode()} has {len(text)} bytes; {text_limit} fit")
    if len(line) <= room:
        return [line]
    before, after = head + colon, b""
    may_be_split = command in _MESSAGE_COMMANDS and bool(colon) and split
    if text.startswith(_CTCP_DELIMITER):
        verb, blank, text = text.strip(_CTCP_DELIMITER).partition(b" ")
        may_be_split = may_be_split and verb == b"ACTION" and bool(blank)
        before, after = before + _CTCP_DELIMITER + verb + blank, _CTCP_DELIMITER
    space = room - len(before) - len(after)
    if not may_be_split or space < _MIN_PART:
        raise UnencodableMessage(f"the line has {len(line)} bytes; only {max(room, 0)} fit after its sender")
    return [before + part + after for part in _split_text(text, space)]


def _split_text(text: bytes, limit: int) -> list[bytes]:
    """Split a text into parts of at most ``limit`` bytes."""
    parts = []
    while len(text) > limit:
        end = text.rfind(b" ", 1, limit + 1)
        if end < limit // 2:
            # Split an overlong word, but not within a UTF-8 character.
            end = limit
            while end > limit - 4 and text[end] & 0xC0 == 0x80:
                end -= 1
        parts.append(text[:end])
        text = text[end:].removeprefix(b" ")
    return [*parts, text] if text else parts
