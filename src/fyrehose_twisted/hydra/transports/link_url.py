"""Parser of link strings such as ``tcp:192.0.2.7:6174`` and ``fifo:/run/hydra/a-b``.

As in Twisted's endpoint strings, a backslash escapes a colon, an equals sign or a backslash. An IPv6 address may be
written in brackets instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.addresses import parse_address

LinkKind = Literal["tcp", "tls", "udp", "irc", "fifo"]

EXAMPLES: dict[LinkKind, str] = {
    "tcp": "tcp:192.0.2.7:6174",
    "tls": "tls:node.example.org:6174",
    "udp": "udp:192.0.2.7:6174",
    "irc": "irc:irc.example.org:6667:ivan:boris",
    "fifo": "fifo:/run/hydra/ivan-boris",
}
"""Example of each kind of link."""

LINES_PER_SECOND = 1.0
"""Default rate, which any IRC server accepts."""

_TLS_OPTIONS = frozenset(("timeout", "bindAddress", "certificate", "privateKey", "trustRoots", "endpoint"))
_OPTIONS: dict[LinkKind, frozenset[str]] = {
    "tcp": frozenset(("legacy",)),
    "tls": _TLS_OPTIONS,
    "udp": frozenset(),
    "irc": frozenset(("tls", "password-file", "rate")),
    "fifo": frozenset(("side",)),
}
_FIELDS: dict[LinkKind, str] = {
    "tcp": "HOST:PORT",
    "tls": "HOST:PORT",
    "udp": "HOST:PORT",
    "irc": "SERVER:PORT:NICK:PEER",
    "fifo": "DIRECTORY",
}
_NICK = re.compile(r"[A-Za-z\[\]\\`_^{|}][A-Za-z0-9\[\]\\`_^{|}-]{0,29}")
_CASE_EQUIVALENTS = str.maketrans("[]\\", "{}|")
"""Characters that IRC servers treat as the same letter."""


@dataclass(frozen=True, slots=True)
class LinkUrl:
    """A parsed link string. Fields that its kind does not have are empty.

    :ivar text: the link string, which is also the name of the link.
    :ivar host: host of the node, or of the IRC server.
    :ivar legacy: whether the peer is the reference implementation.
    :ivar endpoint: Twisted client endpoint of a link over TLS.
    :ivar nick: nick of this end of a link over IRC.
    :ivar peer: nick of the other end.
    :ivar tls: whether to use TLS to the IRC server.
    :ivar password_file: file with the password of the IRC server.
    :ivar rate: lines per second that the IRC server accepts.
    :ivar directory: directory of the two named pipes.
    :ivar side: side of this end, 0 or 1; ``None`` for the first free one.
    """

    kind: LinkKind
    text: str
    host: str = ""
    port: int = 0
    legacy: bool = False
    endpoint: str = ""
    nick: str = ""
    peer: str = ""
    tls: bool = False
    password_file: str = ""
    rate: float = LINES_PER_SECOND
    directory: str = ""
    side: int | None = None


class _BadLink(Exception):
    """A link string is invalid. Internal to this module."""


def parse_link(text: str) -> LinkUrl:
    """Parse a link string.

    :raises ConfigurationError: if it is invalid.
    """
    name = text.partition(":")[0]
    kind: LinkKind | None = next((known for known in get_args(LinkKind) if known == name), None)
    if kind is None:
        raise ConfigurationError(
            f"{text!r} is not a link: the kind must be one of {', '.join(EXAMPLES)}; for instance, {EXAMPLES['tcp']}"
        )
    try:
        if not text.isprintable():
            raise _BadLink("it contains an unprintable character")
        fields, options = _split(text, bracketed=kind != "fifo")
        wanted = _FIELDS[kind]
        if len(fields) != 1 + len(wanted.split(":")) or not all(fields):
            raise _BadLink(f"expected {kind}:{wanted} and then options; write a colon in a field as \\:")
        for option in options:
            if option not in _OPTIONS[kind]:
                known = ", ".join(sorted(_OPTIONS[kind])) or "none"
                raise _BadLink(
                    f"{option!r} is not an option of {kind} (options: {known}; write a plain equals sign as \\=)"
                )
        return LinkUrl(kind, text, **_PARSERS[kind](fields[1:], options))
    except _BadLink as problem:
        raise ConfigurationError(f"{text!r} is not a link: {problem}; for instance, {EXAMPLES[kind]}") from None


def _split(text: str, *, bracketed: bool) -> tuple[list[str], dict[str, str]]:
    """Return the positional fields and the options."""
    fields: list[str] = []
    options: dict[str, str] = {}
    key: str | None = None
    current = ""

    def end_field() -> None:
        nonlocal key, current
        if key is not None:
            if key in options:
                raise _BadLink(f"option {key!r} is given twice")
            options[key] = current
        elif options:
            raise _BadLink(f"{current!r} follows an option but is not one")
        else:
            fields.append(current)
        key, current = None, ""

    characters = iter(text)
    for character in characters:
        if character == "\\":
            following = next(characters, None)
            if following is None:
                raise _BadLink("the backslash at the end escapes nothing")
            current += following
        elif character == ":":
            end_field()
        elif character == "=" and key is None:
            key, current = current, ""
        elif character == "[" and bracketed and len(fields) == 1 and not current:
            current = "["
            for inside in characters:
                current += inside
                if inside == "]":
                    break
        else:
            current += character
    end_field()
    return fields, options


def _parse_address(host: str, port: str) -> tuple[str, int]:
    in_brackets = host.startswith("[") or ":" not in host
    try:
        if any(character.isspace() for character in host):
            raise ConfigurationError(host)
        return parse_address(f"{host}:{port}" if in_brackets else f"[{host}]:{port}")
    except ConfigurationError:
        raise _BadLink(f"{host!r} and {port!r} are not a host and a port from 1 to 65535") from None


def _parse_yes_no(options: dict[str, str], option: str) -> bool:
    said = options.get(option, "no")
    if said not in ("yes", "no"):
        raise _BadLink(f"{option} must be yes or no, not {said!r}")
    return said == "yes"


def _parse_tcp(fields: list[str], options: dict[str, str]) -> dict[str, Any]:
    host, port = _parse_address(*fields)
    return {"host": host, "port": port, "legacy": _parse_yes_no(options, "legacy")}


def _parse_tls(fields: list[str], options: dict[str, str]) -> dict[str, Any]:
    host, port = _parse_address(*fields)
    if ":" in host:
        raise _BadLink("Twisted does not support TLS to an IPv6 address; give a name")
    if not options.get("timeout", "1").isdecimal():
        raise _BadLink(f"timeout must be a number of seconds, not {options['timeout']!r}")
    words = ["tls", _quote(host), str(port), *(f"{option}={_quote(options[option])}" for option in options)]
    return {"host": host, "port": port, "endpoint": ":".join(words)}


def _parse_udp(fields: list[str], options: dict[str, str]) -> dict[str, Any]:
    host, port = _parse_address(*fields)
    return {"host": host, "port": port}


def _parse_irc(fields: list[str], options: dict[str, str]) -> dict[str, Any]:
    server, port_text, nick, peer = fields
    host, port = _parse_address(server, port_text)
    for name in (nick, peer):
        if not _NICK.fullmatch(name):
            raise _BadLink(f"{name!r} is not a nick of 1 to 30 characters")
    if nick.lower().translate(_CASE_EQUIVALENTS) == peer.lower().translate(_CASE_EQUIVALENTS):
        raise _BadLink(f"{nick!r} and {peer!r} are the same nick; give each end its own")
    try:
        rate = float(options.get("rate", LINES_PER_SECOND))
    except ValueError:
        rate = math.nan
    if not 0 < rate <= 1_000:
        raise _BadLink(f"rate must be above 0 and at most 1000 lines per second, not {options['rate']!r}")
    if not options.get("password-file", "-"):
        raise _BadLink("password-file is empty")
    return {
        "host": host,
        "port": port,
        "nick": nick,
        "peer": peer,
        "tls": _parse_yes_no(options, "tls"),
        "password_file": options.get("password-file", ""),
        "rate": rate,
    }


def _parse_fifo(fields: list[str], options: dict[str, str]) -> dict[str, Any]:
    side = options.get("side")
    if side not in (None, "0", "1"):
        raise _BadLink(f"side must be 0 or 1, not {side!r}")
    return {"directory": fields[0], "side": None if side is None else int(side)}


def _quote(field: str) -> str:
    return re.sub(r"([\\:=])", r"\\\1", field)


_PARSERS: dict[LinkKind, Callable[[list[str], dict[str, str]], dict[str, Any]]] = {
    "tcp": _parse_tcp,
    "tls": _parse_tls,
    "udp": _parse_udp,
    "irc": _parse_irc,
    "fifo": _parse_fifo,
}
