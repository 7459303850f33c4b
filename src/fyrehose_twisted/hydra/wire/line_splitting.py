"""What fits into a line of IRC once the server has put its sender in front, and how a longer message is split."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.wire.messages import MAX_IRC

_MAX_USER = 10
"""Bytes of a user name, at most, as servers cut it; with the tilde that they put in front."""
_MAX_HOST = 63
"""The same of a host."""
_MIN_PART = 16
"""Bytes of a part of a message, at least."""
MAX_PARTS = MAX_IRC // (_MIN_PART // 2)
"""Lines that a message is split into, at most."""
_MESSAGE_COMMANDS = frozenset((b"PRIVMSG", b"NOTICE"))
_CTCP_DELIMITER = b"\x01"
"""What a message of CTCP, such as an ACTION, begins and ends with."""


class IrcLimits(NamedTuple):
    """What a server says that it takes (RPL_ISUPPORT), in bytes; ``None`` where it says nothing.

    :ivar line: LINELEN, with CR LF and with the sender that the server puts in front.
    :ivar topic: TOPICLEN.
    :ivar kick: KICKLEN.
    """

    line: int = MAX_IRC + 2
    topic: int | None = None
    kick: int | None = None


def max_line_length(prefix: bytes, limits: IrcLimits) -> int:
    """Return how many bytes a line may have, without CR LF, so that everybody gets all of it.

    :param prefix: ``nick!user@host`` as far as it is known; what is not is taken to be as long as it can be.
    """
    nick, mark, rest = prefix.partition(b"!")
    sender = len(prefix) if mark and b"@" in rest else len(nick) + 2 + _MAX_USER + _MAX_HOST
    return limits.line - 2 - len(b": ") - sender


def split_to_fit(line: bytes, prefix: bytes, limits: IrcLimits, *, split: bool) -> list[bytes]:
    """Return a line that may be said as the lines that it is said in.

    A message is split between words if it has any in the right places, else between characters.

    :param prefix: of the sender, ``nick!user@host``.
    :param split: whether a message may be said in several lines.
    :raises UnencodableMessage: if the server would cut it.
    """
    room = max_line_length(prefix, limits)
    head, colon, text = line.partition(b" :")
    command = head.partition(b" ")[0]
    most = {b"TOPIC": limits.topic, b"KICK": limits.kick}.get(command)
    if most is not None and len(text) > most:
        raise UnencodableMessage(f"the text of a {command.decode()} has {len(text)} bytes; {most} fit")
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
        raise UnencodableMessage(f"the line has {len(line)} bytes; behind its sender {max(room, 0)} fit")
    return [before + part + after for part in _split_text(text, space)]


def _split_text(text: bytes, limit: int) -> list[bytes]:
    """Return a text in parts of ``limit`` bytes at most."""
    parts = []
    while len(text) > limit:
        end = text.rfind(b" ", 1, limit + 1)
        if end < limit // 2:
            # A word that is longer than that is torn, but no character of UTF-8 is.
            end = limit
            while end > limit - 4 and text[end] & 0xC0 == 0x80:
                end -= 1
        parts.append(text[:end])
        text = text[end:].removeprefix(b" ")
    return [*parts, text] if text else parts
