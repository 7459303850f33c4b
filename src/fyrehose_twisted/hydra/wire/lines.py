"""IRC lines between nodes.

A line that a node submits carries a tag, ``@+hydra/n=TOKEN``. The token distinguishes equal lines, and lets the
submitting node recognize its line when the leader relays it as RECV. The leader removes the tag before IRC.
"""

from __future__ import annotations

import re

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.wire.irc_line import for_display, parse_irc_line
from fyrehose_twisted.hydra.wire.messages import MAX_IRC, MAX_LINE, SENDABLE

MAX_TOKEN = 32
"""Largest token in bytes."""
_TAG = b"@+hydra/n="
_TOKEN = re.compile(rb"@\+hydra/n=([!-:<-~]{1,%d}) " % MAX_TOKEN)
_LINE_BREAKING = re.compile(rb"[\r\n\0]")


def untag(line: bytes) -> tuple[str | None, bytes]:
    """Return the token of a line, ``None`` if untagged, and the line without tag."""
    if not line.startswith(_TAG):
        return None, line
    found = _TOKEN.match(line)
    return (None, line) if found is None else (found[1].decode(), line[found.end() :])


def add_tag(token: str, line: bytes) -> bytes:
    """Return a line tagged with a token."""
    return b"%s%s %s" % (_TAG, token.encode(), line)


def part_token(token: str, number: int) -> str:
    """Return the token of one part of a split message. The last part has the token of the message."""
    mark = f"/{number}"
    return token[: MAX_TOKEN - len(mark)] + mark


def command_of(line: bytes) -> bytes:
    """Return the command of a line in upper case, skipping tags and prefix; empty if there is none."""
    words = line.split(None, 3)
    for mark in b"@:":
        if words and words[0][:1] == bytes((mark,)):
            del words[0]
    return words[0].upper() if words else b""


def is_error_numeric(command: bytes) -> bool:
    """Return whether a command is an error numeric of an IRC server."""
    return len(command) == 3 and command.isdigit() and command >= b"400"


def server_error_text(line: bytes) -> str | None:
    """Return the error of a server in readable form, such as ``404 #c Cannot send to channel``.

    :returns: ``None`` if the line is not an error numeric.
    """
    if not is_error_numeric(command_of(line)):
        return None
    parsed = parse_irc_line(line)
    return None if parsed is None else for_display(" ".join((parsed.command, *parsed.params[1:])))


def check_sendable(line: bytes) -> None:
    """Check that a node may submit a line, given without tags.

    :raises UnencodableMessage: if it is not one IRC line with a command of
        :data:`~fyrehose_twisted.hydra.wire.messages.SENDABLE`.
    """
    if _LINE_BREAKING.search(line):
        raise UnencodableMessage("a line for IRC contains a CR, LF or NUL; send each line separately")
    if len(line) > MAX_IRC:
        raise UnencodableMessage(f"a line for IRC has {len(line)} bytes; the limit is {MAX_IRC}")
    if line[:1] in (b":", b"@", b" ", b""):
        raise UnencodableMessage(f"{line[:40]!r} does not begin with an IRC command")
    command, _, rest = line.partition(b" ")
    if command not in SENDABLE:
        known = ", ".join(sorted(map(bytes.decode, SENDABLE)))
        raise UnencodableMessage(f"{command[:20]!r} is not one of {known}")
    if not rest.strip():
        raise UnencodableMessage(f"{command.decode()} requires parameters")


def is_sendable(line: bytes) -> bool:
    """Return whether the leader may write a line of another node, given without tags, to IRC."""
    try:
        check_sendable(line)
    except UnencodableMessage:
        return False
    return True


def fits_recv(line: bytes) -> bool:
    """Return whether a line fits into a RECV."""
    return len(line) <= MAX_LINE - 32 and not _LINE_BREAKING.search(line)
