"""The connection to IRC that the leader of a network holds: one nick in its channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.irc.client import LINGER, IrcClient, irc_endpoint
from fyrehose_twisted.hydra.wire.irc_line import CHANNEL_TYPES, Line, Login, one_word, readable, wire
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits
from fyrehose_twisted.hydra.wire.lines import check_said, command_of, is_numeric
from fyrehose_twisted.hydra.wire.messages import E_RECV

MAX_CHANNELS = 50
"""Channels of one connection."""
MAX_EARLY = 10_000
"""Lines that are kept from being let in until every channel has answered."""
REJOIN = 2.0, 60.0
"""Seconds until a channel is joined again from which one was thrown out: the first time, and at most."""
_RELAYED = frozenset(command.decode() for command in E_RECV)


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel, and the key that it may need."""

    name: str
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not one_word(self.name) or self.name[0] not in CHANNEL_TYPES or "," in self.name:
            raise ConfigurationError(f"{self.name!r} is no channel; #name is")
        if self.key is not None and (not one_word(self.key) or "," in self.key or self.key.startswith(":")):
            raise ConfigurationError(f"the key of {self.name} is not one printable word without a comma")


@dataclass(frozen=True, slots=True)
class IrcConfig:
    """Where a leader connects to, and as whom.

    :ivar servers: each ``HOST:PORT``, or a client endpoint such as ``tls:irc.example.org:6697``; used in turn.
    :ivar nick: if somebody has it, ``_`` is put behind it until it can be had.
    :ivar password: that of the server.
    :ivar sasl: account and password, for SASL PLAIN.
    :ivar timeout: seconds that connecting, registering and joining may take together.
    :ivar ping_every: seconds between PINGs to the server.
    :ivar answer_within: seconds of silence after one that end the connection.
    :ivar reclaim_every: seconds between attempts to get the nick.
    :ivar retry_every: seconds between attempts to join a channel that refused.
    """

    servers: tuple[str, ...]
    nick: str
    channels: tuple[Channel, ...]
    username: str = ""
    realname: str = "hydra"
    password: str | None = field(default=None, repr=False)
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    timeout: float = 15.0
    ping_every: float = 30.0
    answer_within: float = 20.0
    reclaim_every: float = 5.0
    retry_every: float = 30.0

    def __post_init__(self) -> None:
        if not self.servers:
            raise ConfigurationError("there is no IRC server to connect to")
        if not 1 <= len(self.channels) <= MAX_CHANNELS:
            raise ConfigurationError(f"{len(self.channels)} channels are outside 1 to {MAX_CHANNELS}")
        self.login()

    def login(self) -> Login:
        """Return how it registers."""
        return Login(self.nick, self.username, self.realname, self.password, self.sasl)


class ActiveConnection:
    """A connection to IRC that can be opened again and again, to one server after the other.

    :param opened: told ``nick!user@host`` once the connection is registered and every channel has answered, at least
        one of them with yes.
    :param closed: told why, once after each :meth:`open`, when the transport is closed for certain.
    :param received: told the lines of :data:`~fyrehose_twisted.hydra.wire.messages.E_RECV`, and errors of the server,
        that came together, as they came.
    :param answered: told the number of an :meth:`ask` that the server answered, after all that came before.
    :param renamed: told what is new about ``nick!user@host`` later on.
    :ivar counts: what was counted since the start.
    """

    log = Logger()

    def __init__(
        self,
        config: IrcConfig,
        reactor: Any,
        *,
        opened: Callable[[bytes], None],
        closed: Callable[[str], None],
        received: Callable[[Sequence[bytes]], None],
        answered: Callable[[int], None] | None = None,
        renamed: Callable[[bytes], None] | None = None,
    ) -> None:
        self.config = config
        self.opened = opened
        self.received = received
        self.answered = answered
        self.renamed = renamed
        self.counts: Counter[str] = Counter()
        self._closed = closed
        self._reactor = reactor
        self._endpoints = [irc_endpoint(reactor, server) for server in config.servers]
        self._turn = 0
        self._client: _Active | None = None

    @property
    def server(self) -> str:
        """The server that it is connected to, or being connected to; nothing otherwise."""
        return "" if self._client is None else self._client.server

    @property
    def prefix(self) -> bytes:
        """``nick!user@host`` as far as it is known; nothing if there is no connection."""
        return b"" if self._client is None else self._client.prefix.encode("latin-1")

    @property
    def limits(self) -> IrcLimits:
        """The limits that the server announced."""
        return IrcLimits() if self._client is None else self._client.limits

    def open(self) -> None:
        """Connect to the next server, register and join."""
        assert self._client is None, "the last connection is not closed yet"
        index = self._turn % len(self._endpoints)
        self._turn += 1
        self.counts["opened"] += 1
        self._client = _Active(self, self.config, self.config.servers[index], self._reactor)
        self.log.info("connecting to IRC at {server}", server=self._client.server)
        self._client.dial(self._endpoints[index])

    def say(self, line: bytes) -> bool:
        """Hand a line, without CR LF, to IRC, now; return whether there was a connection that took it.

        :raises UnencodableMessage: if it is not one line that a node may have said.
        """
        check_said(line)
        client = self._client
        if client is None or not client.registered or not client.put(line):
            self.counts["unsaid"] += 1
            return False
        if command_of(line) == b"PART":
            client.parting(line)
        self.counts["said"] += 1
        return True

    def ask(self, number: int) -> None:
        """Ask the server whether it has read all that it was given so far."""
        if self._client is not None:
            self._client.ask(number)

    def close(self, reason: str, polite: bool = True) -> None:
        """Close the connection, or give up opening it.

        :param polite: say goodbye, which may take a second; otherwise it is cut off at once, and nothing that waits
            here is written any more.
        """
        if self._client is None:
            return
        if polite:
            self._client.leave(reason, LINGER)
        else:
            self._client.cut_off(reason)

    def over(self, client: _Active, reason: str) -> None:
        """Its connection has ended."""
        self._client = None
        self.log.info("the connection to IRC at {server} is closed: {reason}", server=client.server, reason=reason)
        self._closed(reason)


class _Stand(Enum):
    """How far one is with a channel."""

    ASKED = "asked"
    IN = "in"
    REFUSED = "refused"
    OUT = "out"
    """Left on purpose."""


class _Place:
    """A channel that one wants to be in."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.name = wire(channel.name)
        self.stand = _Stand.ASKED
        self.why = ""
        self.parting = False
        self.joined_at = 0.0
        self.delay = REJOIN[0]
        self.timer: IDelayedCall | None = None


class _Active(IrcClient):
    """One connection of an :class:`ActiveConnection`."""

    hears_out = True

    def __init__(self, owner: ActiveConnection, config: IrcConfig, server: str, reactor: Any) -> None:
        super().__init__(
            config.login(),
            reactor,
            server=server,
            timeout=config.timeout,
            ping_every=config.ping_every,
            answer_within=config.answer_within,
        )
        self.counts = owner.counts
        self._owner = owner
        self._config = config
        self._wanted = wire(config.nick)
        stem = self._wanted
        # The last two are for servers on which nothing more fits behind it.
        self._others = [stem + "_", stem + "__", stem[:-1] + "_", stem[:-2] + "__"]
        self._places = [_Place(channel) for channel in config.channels]
        self._lines: list[bytes] = []
        self._open = False
        self._reclaiming: IDelayedCall | None = None

    # Nicks

    def nick_refused(self, code: str, nick: str) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self.registered:
            return  # It is asked for again before long.
        if code in ("431", "432") and self.nick == self._wanted:
            self.cut_off(f"the nick {readable(self._wanted)} is not allowed there")
        elif self._others:
            self.ask_for(self._others.pop(0))
        else:
            self.cut_off(f"the nick {readable(self._wanted)} and those like it are taken")

    def nick_taken(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self._reclaim_soon()
        if self._open and self._owner.renamed is not None:
            self._owner.renamed(self.prefix.encode("latin-1"))

    def _is_free_now(self, line: Line) -> bool:
        """Say whether somebody else had the nick that is wanted, and gave it up."""
        if self.nick == self._wanted or self.fold(line.nick) != self.fold(self._wanted):
            return False
        return line.command == "QUIT" or not self.is_own(line.params[0])

    def _reclaim_soon(self) -> None:
        if self._reclaiming is None and self.nick != self._wanted and not self.over:
            self._reclaiming = self.clock.callLater(self._config.reclaim_every, self._reclaim)

    def _reclaim(self) -> None:
        self._reclaiming = None
        if self.nick != self._wanted and not self.over:
            self.ask_for(self._wanted)
            self._reclaim_soon()

    # Channels

    def signed_on(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self._reclaim_soon()
        for place in self._places:
            self._join(place)

    def parting(self, line: bytes) -> None:
        """Somebody wants to be out of channels."""
        names = {self.fold(name) for name in line.decode("latin-1").split(" ")[1].split(",")}
        for place in self._places:
            place.parting = place.parting or self.fold(place.name) in names

    def _join(self, place: _Place) -> None:
        place.timer = None
        if place.stand is not _Stand.IN and not self.over:
            self.send("JOIN", place.name, *([] if place.channel.key is None else [wire(place.channel.key)]))

    def _join_in(self, place: _Place, delay: float) -> None:
        if place.timer is None:
            place.timer = self.clock.callLater(delay, self._join, place)

    def _place(self, name: str) -> _Place | None:
        folded = self.fold(name)
        return next((place for place in self._places if self.fold(place.name) == folded), None)

    def _joined(self, name: str) -> None:
        place = self._place(name)
        if place is not None:
            place.stand, place.parting, place.joined_at = _Stand.IN, False, self.clock.seconds()
            self._look_if_open()

    def _thrown_out(self, name: str, how: str) -> None:
        place = self._place(name)
        if place is None or place.stand is not _Stand.IN:
            return
        if how == "PART" and place.parting:
            place.stand = _Stand.OUT
            return
        if self.clock.seconds() - place.joined_at > REJOIN[1]:
            place.delay = REJOIN[0]
        place.stand = _Stand.ASKED
        self._join_in(place, place.delay)
        place.delay = min(2 * place.delay, REJOIN[1])
        self.counts["thrown_out"] += 1
        self.complaints.complain(how, place.channel.name, "thrown out of {source} by a {how}", how=how)

    def _join_refused(self, place: _Place, line: Line) -> None:
        place.stand, place.why = _Stand.REFUSED, f"{line.command} {readable(line.params[-1])}"
        self._join_in(place, self._config.retry_every)
        text = "cannot join {source} on {server}: {why}"
        self.complaints.complain("refused", place.channel.name, text, server=self.server, why=place.why)
        self._look_if_open()

    def _look_if_open(self, *, patient: bool = True) -> None:
        if self._open or (patient and any(place.stand is _Stand.ASKED for place in self._places)):
            return
        if not any(place.stand is _Stand.IN for place in self._places):
            reasons = "; ".join(f"{place.channel.name}: {place.why}" for place in self._places if place.why)
            self.cut_off(f"no channel could be joined ({reasons})" if reasons else "no answer")
            return
        self._open = True
        self.settled()
        for place in self._places:
            if place.stand is _Stand.ASKED:
                self._join_in(place, self._config.retry_every)
        self.log.info("on IRC at {server} as {nick}", server=self.server, nick=readable(self.nick))
        self._owner.opened(self.prefix.encode("latin-1"))

    def unsettled(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self._look_if_open(patient=False)
        self.data_over()

    # Lines

    def line_received(self, line: Line) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if not self.registered:
            return
        if line.command in _RELAYED or (self._open and is_numeric(line.command.encode())):
            if self._open or len(self._lines) < MAX_EARLY:
                self._lines.append(line.raw)
            else:
                self.counts["early"] += 1
        match line.command, line.params:
            case "JOIN", (name, *_) if self.is_own(line.nick):
                self._joined(name)
            case "PART", (name, *_) if self.is_own(line.nick):
                self._thrown_out(name, "PART")
            case "KICK", (name, nick, *_) if self.is_own(nick):
                self._thrown_out(name, "KICK")
            case (("QUIT" | "NICK"), _) if self._is_free_now(line):
                self.ask_for(self._wanted)
            case code, (_, name, *_) if code[0] in "45":
                place = self._place(name)
                # With a timer it is not being asked for, and the line is about something else.
                if place is not None and place.timer is None and place.stand in (_Stand.ASKED, _Stand.REFUSED):
                    self._join_refused(place, line)

    def data_over(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self._open and self._lines and not self.over:
            lines, self._lines = self._lines, []
            self._owner.received(lines)

    def answered(self, number: int) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self._owner.answered is not None:
            self._owner.answered(number)

    def ended(self, reason: str) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        for timer in (self._reclaiming, *(place.timer for place in self._places)):
            if timer is not None and timer.active():
                timer.cancel()
        self._owner.over(self, reason)
