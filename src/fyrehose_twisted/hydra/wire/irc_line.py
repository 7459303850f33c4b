"""Lines of IRC, taken apart: Latin-1 text, in which each character is a byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fyrehose_twisted.errors import ConfigurationError

CHANNEL_TYPES = "#&+!"
"""What names of channels begin with."""


_ASCII = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_STRICT_RFC1459 = _ASCII | {ord("["): ord("{"), ord("]"): ord("}"), ord("\\"): ord("|")}
CASEMAPPINGS = {
    "ascii": _ASCII,
    "rfc1459": _STRICT_RFC1459 | {ord("^"): ord("~")},
    "rfc1459-strict": _STRICT_RFC1459,
    "strict-rfc1459": _STRICT_RFC1459,
}
"""How servers fold the case of names, by what they call it."""


class ParsedLine(NamedTuple):
    """A line of IRC, taken apart."""

    raw: bytes
    """As it came, without CR LF."""
    nick: str
    """Of whoever it is from, or the name of a server."""
    prefix: str
    command: str
    """In upper case."""
    params: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IrcLogin:
    """How one registers with a server.

    :ivar nick: the nick that is wanted.
    :ivar username: the nick if empty.
    :ivar password: that of the server.
    :ivar sasl: account and password, for SASL PLAIN.
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
            raise ConfigurationError(f"{self.nick!r} is no nick")
        if self.username and (not is_single_param(self.username) or not set("!@:").isdisjoint(self.username)):
            raise ConfigurationError(f"{self.username!r} is no user name")
        if not self.realname.isprintable():
            raise ConfigurationError(f"the real name {self.realname!r} cannot be printed")
        if self.password is not None and (not is_single_param(self.password) or self.password.startswith(":")):
            raise ConfigurationError("the password of the IRC server is not one printable word")
        if self.sasl is not None and (not all(self.sasl) or "\0" in "".join(self.sasl)):
            raise ConfigurationError("the SASL account or its password is empty, or has a NUL in it")


def casefold(name: str) -> str:
    """Return what is equal for two nicks if some server may take them for the same."""
    return name.translate(CASEMAPPINGS["rfc1459"])


def is_single_param(text: str) -> bool:
    """Say whether ``text`` is one parameter of IRC."""
    return bool(text) and text.isprintable() and " " not in text


def to_wire(text: str) -> str:
    """Return the UTF-8 bytes of ``text`` as Latin-1."""
    return text.encode().decode("latin-1")


def for_display(text: str) -> str:
    """Return what came from a server for people: printable, and not long."""
    decoded = text[:400].encode("latin-1").decode(errors="replace")
    return "".join(character if character.isprintable() else "?" for character in decoded)[:200]


def parse_irc_line(raw: bytes) -> ParsedLine | None:
    """Take a line apart; ``None`` if it is none of IRC."""
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
