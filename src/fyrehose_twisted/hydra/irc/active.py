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
from fyrehose_twisted.hydra.wire.irc_line import (
    CHANNEL_TYPES,
    IrcLogin,
    ParsedLine,
    for_display,
    is_single_param,
    to_wire,
)
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits
from fyrehose_twisted.hydra.wire.lines import check_sendable, command_of, is_error_numeric
from fyrehose_twisted.hydra.wire.messages import E_RECV

MAX_CHANNELS = 50
"""Channels of one connection."""
MAX_BUFFERED_LINES = 10_000
"""Lines that are kept from being let in until every channel has answered."""
REJOIN_DELAYS = 2.0, 60.0
"""Seconds until a channel is joined again from which one was thrown out: the first time, and at most."""
_RELAYED = frozenset(command.decode() for command in E_RECV)


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel, and the key that it may need."""

    name: str
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not is_single_param(self.name) or self.name[0] not in CHANNEL_TYPES or "," in self.name:
            raise ConfigurationError(f"{self.name!r} is no channel; #name is")
        if self.key is not None and (not is_single_param(self.key) or "," in self.key or self.key.startswith(":")):
            raise ConfigurationError(f"the key of {self.name} is not one printable word without a comma")


@dataclass(frozen=True, slots=True)
class IrcConfig:
    """Where a leader connects to, and as whom.

    :ivar servers: each ``HOST:PORT``, or a client endpoint such as ``tls:irc.example.org:6697``; used in turn.
    :ivar nick: if somebody has it, ``_`` is put behind it until it can be had.
    :ivar password: that of the server.
    :ivar sasl: account and password, for SASL PLAIN.
    :ivar timeout: seconds that connecting, registering and joining may take together.
    :ivar ping_interval: seconds between PINGs to the server.
    :ivar ping_timeout: seconds of silence after one that end the connection.
    :ivar reclaim_interval: seconds between attempts to get the nick.
    :ivar rejoin_interval: seconds between attempts to join a channel that refused.
    """

    servers: tuple[str, ...]
    nick: str
    channels: tuple[Channel, ...]
    username: str = ""
    realname: str = "hydra"
    password: str | None = field(default=None, repr=False)
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    timeout: float = 15.0
    ping_interval: float = 30.0
    ping_timeout: float = 20.0
    reclaim_interval: float = 5.0
    rejoin_interval: float = 30.0

    def __post_init__(self) -> None:
        if not self.servers:
            raise ConfigurationError("there is no IRC server to connect to")
        if not 1 <= len(self.channels) <= MAX_CHANNELS:
            raise ConfigurationError(f"{len(self.channels)} channels are outside 1 to {MAX_CHANNELS}")
        self.login()

    def login(self) -> IrcLogin:
        """Return how it registers."""
        return IrcLogin(self.nick, self.username, self.realname, self.password, self.sasl)


class ActiveConnection:
    """A connection to IRC that can be opened again and again, to one server after the other.

    :param opened: told ``nick!user@host`` once the connection is registered and every channel has answered, at least
        one of them with yes.
    :param closed: told why, once after each :meth:`open`, when the transport is closed for certain.
    :param received: told the lines of :data:`~fyrehose_twisted.hydra.wire.messages.E_RECV`, and errors of the server,
        that came together, as they came.
    :param answered: told the number of an :meth:`ask` that the server answered, after all that came before.
    :param renamed: told what is new about ``nick!user@host`` later on.
    :ivar counters: what was counted since the start.
    """

    log = Logger()

    def __init__(
        self,
        config: IrcConfig,
        reactor: Any,
        *,
        on_opened: Callable[[bytes], None],
        on_closed: Callable[[str], None],
        on_received: Callable[[Sequence[bytes]], None],
        on_answered: Callable[[int], None] | None = None,
        on_prefix_changed: Callable[[bytes], None] | None = None,
    ) -> None:
        self.config = config
        self.on_opened = on_opened
        self.on_received = on_received
        self.on_answered = on_answered
        self.on_prefix_changed = on_prefix_changed
        self.counters: Counter[str] = Counter()
        self._on_closed = on_closed
        self._reactor = reactor
        self._endpoints = [irc_endpoint(reactor, server) for server in config.servers]
        self._next_server = 0
        self._client: _ActiveClient | None = None

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
        index = self._next_server % len(self._endpoints)
        self._next_server += 1
        self.counters["opened"] += 1
        self._client = _ActiveClient(self, self.config, self.config.servers[index], self._reactor)
        self.log.info("connecting to IRC at {server}", server=self._client.server)
        self._client.dial(self._endpoints[index])

    def say(self, line: bytes) -> bool:
        """Hand a line, without CR LF, to IRC, now; return whether there was a connection that took it.

        :raises UnencodableMessage: if it is not one line that a node may have said.
        """
        check_sendable(line)
        client = self._client
        if client is None or not client.registered or not client.write_line(line):
            self.counters["unsaid"] += 1
            return False
        if command_of(line) == b"PART":
            client.part_requested(line)
        self.counters["said"] += 1
        return True

    def ask(self, number: int) -> None:
        """Ask the server whether it has read all that it was given so far."""
        if self._client is not None:
            self._client.ask(number)

    def close(self, reason: str, graceful: bool = True) -> None:
        """Close the connection, or give up opening it.

        :param graceful: say goodbye, which may take a second; otherwise it is cut off at once, and nothing that waits
            here is written any more.
        """
        if self._client is None:
            return
        if graceful:
            self._client.quit(reason, LINGER)
        else:
            self._client.abort(reason)

    def client_ended(self, client: _ActiveClient, reason: str) -> None:
        """Its connection has ended."""
        self._client = None
        self.log.info("the connection to IRC at {server} is closed: {reason}", server=client.server, reason=reason)
        self._on_closed(reason)


class _ChannelState(Enum):
    """How far one is with a channel."""

    JOINING = "asked"
    JOINED = "in"
    REFUSED = "refused"
    PARTED = "out"
    """Left on purpose."""


class _DesiredChannel:
    """A channel that one wants to be in."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.name = to_wire(channel.name)
        self.state = _ChannelState.JOINING
        self.reason = ""
        self.parting = False
        self.joined_at = 0.0
        self.delay = REJOIN_DELAYS[0]
        self.timer: IDelayedCall | None = None


class _ActiveClient(IrcClient):
    """One connection of an :class:`ActiveConnection`."""

    reads_after_quit = True

    def __init__(self, owner: ActiveConnection, config: IrcConfig, server: str, reactor: Any) -> None:
        super().__init__(
            config.login(),
            reactor,
            server=server,
            timeout=config.timeout,
            ping_interval=config.ping_interval,
            ping_timeout=config.ping_timeout,
        )
        self.counters = owner.counters
        self._owner = owner
        self._config = config
        self._preferred_nick = to_wire(config.nick)
        stem = self._preferred_nick
        # The last two are for servers on which nothing more fits behind it.
        self._fallback_nicks = [stem + "_", stem + "__", stem[:-1] + "_", stem[:-2] + "__"]
        self._channels = [_DesiredChannel(channel) for channel in config.channels]
        self._pending_lines: list[bytes] = []
        self._open = False
        self._reclaim_timer: IDelayedCall | None = None

    # Nicks

    def nick_refused(self, code: str, nick: str) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self.registered:
            return  # It is asked for again before long.
        if code in ("431", "432") and self.nick == self._preferred_nick:
            self.abort(f"the nick {for_display(self._preferred_nick)} is not allowed there")
        elif self._fallback_nicks:
            self.request_nick(self._fallback_nicks.pop(0))
        else:
            self.abort(f"the nick {for_display(self._preferred_nick)} and those like it are taken")

    def identity_changed(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self._schedule_reclaim()
        if self._open and self._owner.on_prefix_changed is not None:
            self._owner.on_prefix_changed(self.prefix.encode("latin-1"))

    def _frees_nick(self, line: ParsedLine) -> bool:
        """Say whether somebody else had the nick that is wanted, and gave it up."""
        if self.nick == self._preferred_nick or self.casefold(line.nick) != self.casefold(self._preferred_nick):
            return False
        return line.command == "QUIT" or not self.is_own(line.params[0])

    def _schedule_reclaim(self) -> None:
        if self._reclaim_timer is None and self.nick != self._preferred_nick and not self.is_closed:
            self._reclaim_timer = self.clock.callLater(self._config.reclaim_interval, self._reclaim)

    def _reclaim(self) -> None:
        self._reclaim_timer = None
        if self.nick != self._preferred_nick and not self.is_closed:
            self.request_nick(self._preferred_nick)
            self._schedule_reclaim()

    # Channels

    def signed_on(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self._schedule_reclaim()
        for place in self._channels:
            self._join(place)

    def part_requested(self, line: bytes) -> None:
        """Somebody wants to be out of channels."""
        names = {self.casefold(name) for name in line.decode("latin-1").split(" ")[1].split(",")}
        for place in self._channels:
            place.parting = place.parting or self.casefold(place.name) in names

    def _join(self, place: _DesiredChannel) -> None:
        place.timer = None
        if place.state is not _ChannelState.JOINED and not self.is_closed:
            self.send("JOIN", place.name, *([] if place.channel.key is None else [to_wire(place.channel.key)]))

    def _join_later(self, place: _DesiredChannel, delay: float) -> None:
        if place.timer is None:
            place.timer = self.clock.callLater(delay, self._join, place)

    def _find_channel(self, name: str) -> _DesiredChannel | None:
        folded = self.casefold(name)
        return next((place for place in self._channels if self.casefold(place.name) == folded), None)

    def _joined(self, name: str) -> None:
        place = self._find_channel(name)
        if place is not None:
            place.state, place.parting, place.joined_at = _ChannelState.JOINED, False, self.clock.seconds()
            self._check_open()

    def _removed(self, name: str, command: str) -> None:
        place = self._find_channel(name)
        if place is None or place.state is not _ChannelState.JOINED:
            return
        if command == "PART" and place.parting:
            place.state = _ChannelState.PARTED
            return
        if self.clock.seconds() - place.joined_at > REJOIN_DELAYS[1]:
            place.delay = REJOIN_DELAYS[0]
        place.state = _ChannelState.JOINING
        self._join_later(place, place.delay)
        place.delay = min(2 * place.delay, REJOIN_DELAYS[1])
        self.counters["thrown_out"] += 1
        self.rate_limited_log.warn(command, place.channel.name, "thrown out of {source} by a {how}", how=command)

    def _join_refused(self, place: _DesiredChannel, line: ParsedLine) -> None:
        place.state, place.reason = _ChannelState.REFUSED, f"{line.command} {for_display(line.params[-1])}"
        self._join_later(place, self._config.rejoin_interval)
        text = "cannot join {source} on {server}: {why}"
        self.rate_limited_log.warn("refused", place.channel.name, text, server=self.server, why=place.reason)
        self._check_open()

    def _check_open(self, *, patient: bool = True) -> None:
        if self._open or (patient and any(place.state is _ChannelState.JOINING for place in self._channels)):
            return
        if not any(place.state is _ChannelState.JOINED for place in self._channels):
            reasons = "; ".join(f"{place.channel.name}: {place.reason}" for place in self._channels if place.reason)
            self.abort(f"no channel could be joined ({reasons})" if reasons else "no answer")
            return
        self._open = True
        self.setup_done()
        for place in self._channels:
            if place.state is _ChannelState.JOINING:
                self._join_later(place, self._config.rejoin_interval)
        self.log.info("on IRC at {server} as {nick}", server=self.server, nick=for_display(self.nick))
        self._owner.on_opened(self.prefix.encode("latin-1"))

    def setup_timed_out(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self._check_open(patient=False)
        self.batch_ended()

    # Lines

    def line_received(self, line: ParsedLine) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if not self.registered:
            return
        if line.command in _RELAYED or (self._open and is_error_numeric(line.command.encode())):
            if self._open or len(self._pending_lines) < MAX_BUFFERED_LINES:
                self._pending_lines.append(line.raw)
            else:
                self.counters["early"] += 1
        match line.command, line.params:
            case "JOIN", (name, *_) if self.is_own(line.nick):
                self._joined(name)
            case "PART", (name, *_) if self.is_own(line.nick):
                self._removed(name, "PART")
            case "KICK", (name, nick, *_) if self.is_own(nick):
                self._removed(name, "KICK")
            case (("QUIT" | "NICK"), _) if self._frees_nick(line):
                self.request_nick(self._preferred_nick)
            case code, (_, name, *_) if code[0] in "45":
                place = self._find_channel(name)
                # With a timer it is not being asked for, and the line is about something else.
                if (
                    place is not None
                    and place.timer is None
                    and place.state in (_ChannelState.JOINING, _ChannelState.REFUSED)
                ):
                    self._join_refused(place, line)

    def batch_ended(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self._open and self._pending_lines and not self.is_closed:
            lines, self._pending_lines = self._pending_lines, []
            self._owner.on_received(lines)

    def answered(self, number: int) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self._owner.on_answered is not None:
            self._owner.on_answered(number)

    def ended(self, reason: str) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        for timer in (self._reclaim_timer, *(place.timer for place in self._channels)):
            if timer is not None and timer.active():
                timer.cancel()
        self._owner.client_ended(self, reason)
