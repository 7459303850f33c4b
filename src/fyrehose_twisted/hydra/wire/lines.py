"""Lines of IRC as they travel between nodes.

What a node says goes with a tag in front, ``@+hydra/n=TOKEN``, so that two equal lines stay two, and so that whoever
said it knows it again when the leader relays it as RECV. The leader takes the tag off before IRC sees it.
"""

from __future__ import annotations

import re

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.wire.irc_line import for_display, parse_irc_line
from fyrehose_twisted.hydra.wire.messages import E_SEND, MAX_IRC, MAX_LINE

MAX_TOKEN = 32
"""Bytes of a token."""
_TAG = b"@+hydra/n="
_TOKEN = re.compile(rb"@\+hydra/n=([!-:<-~]{1,%d}) " % MAX_TOKEN)
_LINE_BREAKING = re.compile(rb"[\r\n\0]")


def untag(line: bytes) -> tuple[str | None, bytes]:
    """Return the token of a line, ``None`` if it has none, and the line without it."""
    if not line.startswith(_TAG):
        return None, line
    found = _TOKEN.match(line)
    return (None, line) if found is None else (found[1].decode(), line[found.end() :])


def add_tag(token: str, line: bytes) -> bytes:
    """Return a line with a token."""
    return b"%s%s %s" % (_TAG, token.encode(), line)


def part_token(token: str, number: int) -> str:
    """Return the token of one of several lines that a message is said in; that of the last is the message's own."""
    mark = f"/{number}"
    return token[: MAX_TOKEN - len(mark)] + mark


def command_of(line: bytes) -> bytes:
    """Return the command of a line in capitals, behind tags and prefix; nothing if there is none."""
    words = line.split(None, 3)
    for mark in b"@:":
        if words and words[0][:1] == bytes((mark,)):
            del words[0]
    return words[0].upper() if words else b""


def is_error_numeric(command: bytes) -> bool:
    """Return whether a command is an error that an IRC server answers with."""
    return len(command) == 3 and command.isdigit() and command >= b"400"


def server_error_text(line: bytes) -> str | None:
    """Return for people what an IRC server has against a line, ``404 #c Cannot send to channel``; ``None`` if the
    line is no error of a server."""
    if not is_error_numeric(command_of(line)):
        return None
    parsed = parse_irc_line(line)
    return None if parsed is None else for_display(" ".join((parsed.command, *parsed.params[1:])))


def check_sendable(line: bytes) -> None:
    """See whether a node may have a line said, without tags.

    :raises UnencodableMessage: if it is not one line of IRC with a command of :data:`E_SEND`.
    """
    if _LINE_BREAKING.search(line):
        raise UnencodableMessage("a line for IRC has a CR, LF or NUL in it; say each line by itself")
    if len(line) > MAX_IRC:
        raise UnencodableMessage(f"a line for IRC has {len(line)} bytes; {MAX_IRC} fit")
    if line[:1] in (b":", b"@", b" ", b""):
        raise UnencodableMessage(f"{line[:40]!r} does not begin with a command of IRC")
    command, _, rest = line.partition(b" ")
    if command not in E_SEND:
        known = ", ".join(sorted(map(bytes.decode, E_SEND)))
        raise UnencodableMessage(f"{command[:20]!r} is not one of {known}")
    if not rest.strip():
        raise UnencodableMessage(f"{command.decode()} says nothing without parameters")


def is_sendable(line: bytes) -> bool:
    """Return whether the leader may say a line on IRC that came from another node, without tags."""
    try:
        check_sendable(line)
    except UnencodableMessage:
        return False
    return True


def fits_recv(line: bytes) -> bool:
    """Return whether a line fits a RECV."""
    return len(line) <= MAX_LINE - 32 and not _LINE_BREAKING.search(line)
