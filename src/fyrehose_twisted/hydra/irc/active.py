"""IRC connection of the leader: registration, nick and channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.irc.channels import MAX_CHANNELS, Channel, parse_join
from fyrehose_twisted.hydra.irc.client import LINGER, IrcClient, irc_endpoint
from fyrehose_twisted.hydra.irc.nick_service import NickService, NickServiceConfig
from fyrehose_twisted.hydra.wire.irc_line import IrcLogin, ParsedLine, for_display, to_wire
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits
from fyrehose_twisted.hydra.wire.lines import check_sendable, command_of, is_error_numeric
from fyrehose_twisted.hydra.wire.messages import RELAYED

__all__ = ["MAX_CHANNELS", "ActiveConnection", "Channel", "IrcConfig"]

MAX_BUFFERED_LINES = 10_000
"""Largest number of lines buffered until every channel has answered the JOIN."""
REJOIN_DELAYS = 2.0, 60.0
"""Initial and largest delay, in seconds, before rejoining a channel after a KICK."""
_RELAYED = frozenset(command.decode() for command in RELAYED)


@dataclass(frozen=True, slots=True)
class IrcConfig:
    """IRC configuration of a node.

    :ivar servers: servers, each ``HOST:PORT`` or a client endpoint such as ``tls:irc.example.org:6697``; tried in turn.
    :ivar nick: preferred nick. While it is taken, ``_`` is appended.
    :ivar password: server password.
    :ivar sasl: account and password for SASL PLAIN.
    :ivar nick_service: account with NickServ; ``None`` for none.
    :ivar ctcp_version: reply to CTCP VERSION; empty to leave all CTCP requests to bots.
    :ivar timeout: seconds for connecting, registering and joining together.
    :ivar ping_interval: seconds between PINGs to the server.
    :ivar ping_timeout: seconds of silence after a PING that end the connection.
    :ivar reclaim_interval: seconds between attempts to obtain the preferred nick.
    :ivar rejoin_interval: seconds between attempts to join a channel that refused.
    :raises ConfigurationError: if a value is invalid.
    """

    servers: tuple[str, ...]
    nick: str
    channels: tuple[Channel, ...]
    username: str = ""
    realname: str = "hydra"
    password: str | None = field(default=None, repr=False)
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    nick_service: NickServiceConfig | None = None
    ctcp_version: str = "fyrehose_twisted hydra"
    timeout: float = 15.0
    ping_interval: float = 30.0
    ping_timeout: float = 20.0
    reclaim_interval: float = 5.0
    rejoin_interval: float = 30.0

    def __post_init__(self) -> None:
        if not self.servers:
            raise ConfigurationError("no IRC server is configured")
        if not 1 <= len(self.channels) <= MAX_CHANNELS:
            raise ConfigurationError(f"{len(self.channels)} channels is outside 1 to {MAX_CHANNELS}")
        if not self.ctcp_version.isprintable() or len(self.ctcp_version) > 100:
            raise ConfigurationError("the reply to CTCP VERSION is not a printable text of at most 100 characters")
        self.login()

    def login(self) -> IrcLogin:
        """Return the registration data."""
        return IrcLogin(self.nick, self.username, self.realname, self.password, self.sasl)


class ActiveConnection:
    """A reopenable IRC connection that rotates through its servers.

    :param on_opened: called with ``nick!user@host`` once the connection is registered, every channel has answered and
        at least one was joined.
    :param on_closed: called with the reason once after each :meth:`open`, when the transport is certainly closed.
    :param on_received: called with each batch of received lines, verbatim: those with commands of
        :data:`~fyrehose_twisted.hydra.wire.messages.RELAYED`, and errors of the server.
    :param on_answered: called with the number of an :meth:`ask` after the server's reply, and after the lines received
        before it.
    :param on_prefix_changed: called with ``nick!user@host`` when it changes later.
    :ivar counters: counters since the start.
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
        """Server of the current connection or connection attempt; empty if there is none."""
        return "" if self._client is None else self._client.server

    @property
    def prefix(self) -> bytes:
        """``nick!user@host`` as far as known; empty without a connection."""
        return b"" if self._client is None else self._client.prefix.encode("latin-1")

    @property
    def limits(self) -> IrcLimits:
        """Limits announced by the server."""
        return IrcLimits() if self._client is None else self._client.limits

    def open(self, channels: Sequence[Channel] | None = None, nick: str | None = None) -> None:
        """Connect to the next server, register and join.

        :param channels: channels to join instead of the configured ones; may be empty.
        :param nick: nick to prefer to the configured one.
        """
        assert self._client is None, "the previous connection is still open"
        index = self._next_server % len(self._endpoints)
        self._next_server += 1
        self.counters["opened"] += 1
        config = self.config
        with suppress(ConfigurationError):  # A nick of another network's node may not be one here.
            config = config if nick is None else replace(config, nick=nick)
        self._client = _ActiveClient(
            self, config, config.servers[index], self._reactor, config.channels if channels is None else channels
        )
        self.log.info("connecting to IRC at {server}", server=self._client.server)
        self._client.dial(self._endpoints[index])

    def say(self, line: bytes) -> bool:
        """Write a line, without CR LF, at once; return whether a connection accepted it.

        :raises UnencodableMessage: if nodes may not submit it.
        """
        check_sendable(line)
        client = self._client
        if client is None or not client.registered or not client.write_line(line):
            self.counters["unsaid"] += 1
            return False
        match command_of(line):
            case b"PART":
                client.part_requested(line)
            case b"JOIN":
                client.join_requested(line)
            case b"NICK":
                client.nick_requested(line)
        self.counters["said"] += 1
        return True

    def ask(self, number: int) -> None:
        """Send a numbered PING, whose reply acknowledges everything written before it."""
        if self._client is not None:
            self._client.ask(number)

    def close(self, reason: str, graceful: bool = True) -> None:
        """Close the connection, or abort the connection attempt.

        :param graceful: send QUIT, which may take a second. Otherwise the connection is aborted and unsent data is
            discarded.
        """
        if self._client is None:
            return
        if graceful:
            self._client.quit(reason, LINGER)
        else:
            self._client.abort(reason)

    def client_ended(self, client: _ActiveClient, reason: str) -> None:
        """Handle the end of the current connection."""
        self._client = None
        self.log.info("the connection to IRC at {server} is closed: {reason}", server=client.server, reason=reason)
        self._on_closed(reason)


class _ChannelState(Enum):
    """Membership of a channel."""

    JOINING = "asked"
    JOINED = "in"
    REFUSED = "refused"
    PARTED = "out"
    """Left by PART."""


class _DesiredChannel:
    """A configured or later joined channel with its membership state."""

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

    def __init__(
        self, owner: ActiveConnection, config: IrcConfig, server: str, reactor: Any, channels: Sequence[Channel]
    ) -> None:
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
        # The last two are for servers on which the nick cannot be extended.
        self._fallback_nicks = [stem + "_", stem + "__", stem[:-1] + "_", stem[:-2] + "__"]
        self._channels = [_DesiredChannel(channel) for channel in channels]
        self._requested_keys: dict[str, str | None] = {}
        """Keys of the channels that nodes asked to join, by folded name."""
        self._requested_nick = ""
        self._nick_service = None if config.nick_service is None else NickService(config.nick_service, self.send)
        self._pending_lines: list[bytes] = []
        self._open = False
        self._reclaim_timer: IDelayedCall | None = None

    # Nicks

    def nick_refused(self, code: str, nick: str) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self.registered:
            return  # The reclaim timer asks for it again.
        if code in ("431", "432") and self.nick == self._preferred_nick:
            self.abort(f"the nick {for_display(self._preferred_nick)} is not allowed on this server")
        elif self._fallback_nicks:
            self.request_nick(self._fallback_nicks.pop(0))
        else:
            self.abort(f"the nick {for_display(self._preferred_nick)} and its variants are taken")

    def identity_changed(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self._requested_nick and self.casefold(self.nick) == self.casefold(self._requested_nick):
            self._preferred_nick, self._requested_nick = self.nick, ""
        if self._nick_service is not None:
            self._nick_service.nick_changed(has_preferred=self.nick == self._preferred_nick)
        self._schedule_reclaim()
        if self._open and self._owner.on_prefix_changed is not None:
            self._owner.on_prefix_changed(self.prefix.encode("latin-1"))

    def _frees_nick(self, line: ParsedLine) -> bool:
        """Return whether a line shows that another user released the preferred nick."""
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
        # Otherwise a server tells only the highest mode of a member.
        self.send("CAP", "REQ", ":multi-prefix")
        if self._nick_service is not None:
            self._nick_service.signed_on(self._preferred_nick, has_preferred=self.nick == self._preferred_nick)
        self._schedule_reclaim()
        for place in self._channels:
            self._join(place)
        if not self._channels:
            self._check_open()

    def part_requested(self, line: bytes) -> None:
        """Mark the channels of a PART line as left on purpose."""
        names = {self.casefold(name) for name in line.decode("latin-1").split(" ")[1].split(",")}
        for place in self._channels:
            place.parting = place.parting or self.casefold(place.name) in names

    def join_requested(self, line: bytes) -> None:
        """Note the channels of a JOIN line, whose keys are needed to join them again."""
        for channel in parse_join(*line.decode(errors="replace").split(" ")[1:3]):
            if len(self._requested_keys) < MAX_CHANNELS:
                self._requested_keys[self.casefold(to_wire(channel.name))] = channel.key

    def nick_requested(self, line: bytes) -> None:
        """Note the nick of a NICK line: once the server grants it, it is the preferred one."""
        self._requested_nick = line.decode("latin-1").split(" ")[1].removeprefix(":")

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
        place = self._find_channel(name) or self._add_channel(name)
        if place is not None:
            place.state, place.parting, place.joined_at = _ChannelState.JOINED, False, self.clock.seconds()
            self._check_open()

    def _add_channel(self, name: str) -> _DesiredChannel | None:
        """Add a channel that a node, or the server, made this connection join."""
        key = self._requested_keys.pop(self.casefold(name), None)
        found = parse_join(name.encode("latin-1").decode(errors="replace"), key or "")
        if len(found) != 1 or len(self._channels) >= MAX_CHANNELS:
            self.counters["channels_not_kept"] += 1
            return None
        self._channels.append(_DesiredChannel(found[0]))
        return self._channels[-1]

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
        self.rate_limited_log.warn(command, place.channel.name, "removed from {source} by a {how}", how=command)

    def _join_refused(self, place: _DesiredChannel, line: ParsedLine) -> None:
        place.state, place.reason = _ChannelState.REFUSED, f"{line.command} {for_display(line.params[-1])}"
        self._join_later(place, self._config.rejoin_interval)
        text = "cannot join {source} on {server}: {why}"
        self.rate_limited_log.warn("refused", place.channel.name, text, server=self.server, why=place.reason)
        self._check_open()

    def _check_open(self, *, patient: bool = True) -> None:
        if self._open or (patient and any(place.state is _ChannelState.JOINING for place in self._channels)):
            return
        if self._channels and not any(place.state is _ChannelState.JOINED for place in self._channels):
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
            case (("NOTICE" | "900"), _) if self._nick_service is not None:
                if self._nick_service.is_answer(line):
                    self._identified()
            case "PART", (name, *_) if self.is_own(line.nick):
                self._removed(name, "PART")
            case "KICK", (name, nick, *_) if self.is_own(nick):
                self._removed(name, "KICK")
            case (("QUIT" | "NICK"), _) if self._frees_nick(line):
                self.request_nick(self._preferred_nick)
            case code, (_, name, *_) if code[0] in "45":
                place = self._find_channel(name)
                # With a running timer no JOIN is pending, so the error refers to something else.
                if (
                    place is not None
                    and place.timer is None
                    and place.state in (_ChannelState.JOINING, _ChannelState.REFUSED)
                ):
                    self._join_refused(place, line)

    def _identified(self) -> None:
        """Try again what the nick service may have made possible."""
        if self.nick != self._preferred_nick:
            self.request_nick(self._preferred_nick)
        for place in self._channels:
            if place.state is _ChannelState.REFUSED and place.timer is not None:
                place.timer.reset(0)

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
