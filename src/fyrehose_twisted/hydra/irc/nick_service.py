"""Account of the leader with a nick service (NickServ of Atheme, Anope and others)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.wire.irc_line import ParsedLine, is_single_param, to_wire

RELEASE_COMMANDS = ("GHOST", "REGAIN", "RECOVER", "RELEASE")
"""Commands by which services free a nick."""


@dataclass(frozen=True, slots=True)
class NickServiceConfig:
    """Account with a nick service.

    The password is sent to the service alone. It is in no line that nodes relay, and in no log.

    :ivar password: password of the account.
    :ivar account: name of the account; empty for that of the nick.
    :ivar service: nick of the service, or ``NickServ@services.example.org``, which no user can take.
    :ivar release: command by which the service frees the nick: ``GHOST``, ``REGAIN``, ``RECOVER`` or ``RELEASE``.
    :raises ConfigurationError: if a value cannot be sent.
    """

    password: str = field(repr=False)
    account: str = ""
    service: str = "NickServ"
    release: str = "GHOST"

    def __post_init__(self) -> None:
        if not is_single_param(self.password):
            raise ConfigurationError("the password for the nick service is not one printable word")
        if not is_single_param(self.service) or self.service[0] in "#&+!:" or "," in self.service:
            raise ConfigurationError(f"{self.service!r} is not the nick of a service")
        if self.account and not is_single_param(self.account):
            raise ConfigurationError(f"{self.account!r} is not an account")
        if self.release not in RELEASE_COMMANDS:
            raise ConfigurationError(f"{self.release!r} frees no nick; use {', '.join(RELEASE_COMMANDS)}")


class NickService:
    """Dialogue of one connection with the nick service.

    :param send: writes one line made of words.
    """

    def __init__(self, config: NickServiceConfig, send: Callable[..., None]) -> None:
        self._config = config
        self._send = send
        self._nick = ""
        self._identified_with_nick = False

    def signed_on(self, nick: str, *, has_preferred: bool) -> None:
        """Identify, and have the nick freed if another client has it.

        :param nick: preferred nick.
        """
        self._nick = nick
        self._identify()
        self._identified_with_nick = has_preferred
        if not has_preferred:
            self._tell(self._config.release, nick, to_wire(self._config.password))

    def nick_changed(self, *, has_preferred: bool) -> None:
        """Identify again once the connection has the preferred nick, as some services identify nicks."""
        if has_preferred and self._nick and not self._identified_with_nick:
            self._identify()
        self._identified_with_nick = self._identified_with_nick or has_preferred

    def is_answer(self, line: ParsedLine) -> bool:
        """Return whether a line may mean that the service has identified this connection."""
        service = to_wire(self._config.service).partition("@")[0]
        return line.command == "900" or line.nick.lower() == service.lower()

    def _identify(self) -> None:
        account = [to_wire(self._config.account)] if self._config.account else []
        self._tell("IDENTIFY", *account, to_wire(self._config.password))

    def _tell(self, command: str, *words: str) -> None:
        self._send("PRIVMSG", to_wire(self._config.service), f":{' '.join((command, *words))}")
