"""Parser of IRC lines."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.checks import check_size
from fyrehose_twisted.hydra.wire.irc_line import casefold, for_display, is_single_param, parse_irc_line, to_wire


def seeds() -> Iterable[bytes]:
    """Return lines."""
    return [
        b":nick!user@host PRIVMSG #x :hello there",
        b":irc.example.org 005 me CASEMAPPING=rfc1459 CHANTYPES=# :are supported by this server",
        b":irc.example.org 353 me = #x :@one +two three",
        b"PING :\xe9\xff",
        b":",
        b" : ",
        b"",
    ]


def one(data: bytes) -> None:
    """Parse a line."""
    line = parse_irc_line(data)
    if line is None:
        return
    assert line.raw == data
    assert line.command == line.command.upper()
    assert line.command
    assert all(" " not in word for word in line.params[:-1])
    check_size(line, len(data))
    for text in (line.prefix, line.nick, line.command, *line.params):
        assert len(casefold(text)) == len(text)
        assert for_display(text).isprintable()
        assert len(for_display(text)) <= 200
        is_single_param(text)
        to_wire(text)
