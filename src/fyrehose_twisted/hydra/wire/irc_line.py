"""Parser of IRC lines. Text is Latin-1, so one character is one byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fyrehose_twisted.errors import ConfigurationError

CHANNEL_TYPES = "#&+!"
"""First characters of channel names."""


_ASCII = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_STRICT_RFC1459 = _ASCII | {ord("["): ord("{"), ord("]"): ord("}"), ord("\\"): ord("|")}
CASEMAPPINGS = {
    "ascii": _ASCII,
    "rfc1459": _STRICT_RFC1459 | {ord("^"): ord("~")},
    "rfc1459-strict": _STRICT_RFC1459,
    "strict-rfc1459": _STRICT_RFC1459,
}
"""Case folding of names by CASEMAPPING of the server."""


class ParsedLine(NamedTuple):
    """A parsed IRC line."""

    raw: bytes
    """Received bytes, without CR LF."""
    nick: str
    """Nick of the sender, or server name."""
    prefix: str
    command: str
    """Command in upper case."""
    params: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IrcLogin:
    """Registration data for an IRC server.

    :ivar nick: preferred nick.
    :ivar username: user name; the nick if empty.
    :ivar password: server password.
    :ivar sasl: account and password for SASL PLAIN.
    :raises ConfigurationError: if a value cannot be sent.
    """

    nick: str
    username: str = ""
    realname: str = "hydra"
    password: str | None = field(default=None, repr=False)
    sasl: tuple[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (
            not is_single_param(self.nick)
            or self.nick[0] in CHANNEL_TYPES + ":"
            or not set("!@,*?").isdisjoint(self.nick)
        ):
            raise ConfigurationError(f"{self.nick!r} is not a nick")
        if self.username and (not is_single_param(self.username) or not set("!@:").isdisjoint(self.username)):
            raise ConfigurationError(f"{self.username!r} is not a user name")
        if not self.realname.isprintable():
            raise ConfigurationError(f"the real name {self.realname!r} cannot be printed")
        if self.password is not None and (not is_single_param(self.password) or self.password.startswith(":")):
            raise ConfigurationError("the password of the IRC server is not one printable word")
        if self.sasl is not None and (not all(self.sasl) or "\0" in "".join(self.sasl)):
            raise ConfigurationError("the SASL account or its password is empty, or contains a NUL")


def casefold(name: str) -> str:
    """Return a form of a name that is equal for names which some server may treat as the same."""
    return name.translate(CASEMAPPINGS["rfc1459"])


def is_single_param(text: str) -> bool:
    """Return whether ``text`` is one IRC parameter."""
    return bool(text) and text.isprintable() and " " not in text


def to_wire(text: str) -> str:
    """Return the UTF-8 bytes of ``text`` as Latin-1."""
    return text.encode().decode("latin-1")


def for_display(text: str) -> str:
    """Return text from a server in printable form, at most 200 characters."""
    decoded = text[:400].encode("latin-1").decode(errors="replace")
    return "".join(character if character.isprintable() else "?" for character in decoded)[:200]


def parse_irc_line(raw: bytes) -> ParsedLine | None:
    """Parse a line; return ``None`` if it is not an IRC line."""
    text = raw.decode("latin-1")
    prefix = ""
    if text.startswith(":"):
        prefix, _, text = text[1:].partition(" ")
    text, colon, trailing = text.partition(" :")
    command, *params = [word for word in text.split(" ") if word] or [""]
    if not command.isalnum() or not command.isascii():
        return None
    return ParsedLine(
        raw, prefix.partition("!")[0], prefix, command.upper(), (*params, trailing) if colon else tuple(params)
    )
