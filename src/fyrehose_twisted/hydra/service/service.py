"""Twisted service of a hydra node."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from fyrehose_twisted.errors import ConfigurationError, FyrehoseError
from fyrehose_twisted.hydra.config import TERMS_PER_SECOND
from fyrehose_twisted.hydra.events import (
    AskIrc,
    CloseIrc,
    IdChanged,
    LeaderChanged,
    LeftNetwork,
    LineOutcome,
    LinesMissed,
    LinesReceived,
    OpenIrc,
    Outcome,
    Role,
    RoleChanged,
    StateWanted,
    ToIrc,
)
from fyrehose_twisted.hydra.guardian.launcher import GuardianProcess, can_guard
from fyrehose_twisted.hydra.irc.active import ActiveConnection
from fyrehose_twisted.hydra.irc.bots import BotRunner, parse_line
from fyrehose_twisted.hydra.irc.channels import Channel
from fyrehose_twisted.hydra.irc.ctcp import CtcpResponder
from fyrehose_twisted.hydra.irc.view import IrcView
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.node.status import NodeStatus
from fyrehose_twisted.hydra.protocol import HydraProtocol
from fyrehose_twisted.hydra.service.config import HydraConfig, HydraSettings
from fyrehose_twisted.hydra.service.control import HydraControl
from fyrehose_twisted.hydra.service.event_log import log_event
from fyrehose_twisted.hydra.service.listening import HydraPorts
from fyrehose_twisted.hydra.service.metrics import HydraCollector
from fyrehose_twisted.hydra.service.state_file import StateFile
from fyrehose_twisted.hydra.service.state_handover import StateHandover
from fyrehose_twisted.hydra.transports.dialer import Dialer
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.hydra.wire.irc_line import casefold
from fyrehose_twisted.interfaces import IIrcListener
from fyrehose_twisted.net.auth import Authenticator
from fyrehose_twisted.net.boottime import BoottimeReactor
from fyrehose_twisted.net.control.server import ControlFactory
from fyrehose_twisted.net.metrics import metrics_site
from fyrehose_twisted.net.node_service import NodeService
from fyrehose_twisted.net.service_config import accepts_old_parameters
from fyrehose_twisted.net.stream_driver import StreamDriver
from fyrehose_twisted.process.sd_notify import systemd_notifier
from fyrehose_twisted.process.sighup import ReloadOnHup
from fyrehose_twisted.wording import pluralize

LEAVE_TIMEOUT = 3.0
"""Seconds that a node may take to send its DROP."""
IRC_CLOSE_TIMEOUT = 1.5
"""Seconds that the connection to IRC may take to close after that; then it is cut off."""
MEMBER_ROLES = frozenset((Role.COHORT, Role.LEADER, Role.VOTER, Role.NOMINEE))
"""Roles of a node that belongs to a network."""


class HydraService(NodeService):
    """One node of a network, with its ports, files, guardian and IRC connection.

        node = HydraService(HydraConfig(tag="a", bootstrap=True, irc=IrcConfig(("127.0.0.1:6667",), "bot", channels)))
        node.setServiceParent(application)
        outcome = await node.say("PRIVMSG #c :hi")

    :param config: configuration.
    :param bots: objects that provide :class:`~fyrehose_twisted.interfaces.IBot`.
    :param protocol: protocol of each link.
    :param reload: returns new settings on SIGHUP and on :meth:`reload`; ``None`` if there is nothing to reload.
    :param failed: called with the error that stopped the service; by default the process exits with status 1.
    :ivar node: the node; ``None`` before the start.
    :ivar links: driver of its links; ``None`` before the start.
    :ivar leader: last known change of the leader.
    :ivar counters: counters of the service itself.
    """

    observed = IIrcListener
    log = Logger()

    @accepts_old_parameters(HydraConfig, "config", "links", "listen")
    def __init__(
        self,
        config: HydraConfig,
        *,
        bots: Sequence[Any] = (),
        protocol: type[HydraProtocol] = HydraProtocol,
        reload: Callable[[], HydraSettings] | None = None,
        failed: Callable[[Exception], object] | None = None,
        rng: Random | None = None,
        reactor: Any = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        # Promises are measured with a clock that cannot be set.
        reactor = reactor if isinstance(reactor, BoottimeReactor) else BoottimeReactor(reactor)
        secret, timers = config.secret, config.timers
        proving = None if secret is None else Authenticator(secret, reactor)
        self._ports: HydraPorts = HydraPorts(reactor, config.listen, secret, timers, authenticator=proving)
        super().__init__(
            config, self._ports, protocol=protocol, codec=HydraCodec(), failed=failed, rng=rng, reactor=reactor
        )
        if reload is not None:
            self._reload_on_hup = ReloadOnHup(reload, self.reconfigure, self.reactor)
        self._read_settings = reload
        self.node: HydraNode | None = None
        self.links: StreamDriver | None = None
        self.leader: LeaderChanged | None = None
        self.counters: Counter[str] = Counter()
        self._dialer = Dialer(self.reactor, config.links, secret, timers, authenticator=proving, udp=self._ports.udp)
        if secret is not None:
            self._dialer.set_secrets(secret, *config.other_secrets)
        self._dialer.check()
        self.config = replace(config, targets=self._dialer.targets)
        self._bots = BotRunner(bots, self._send_reply)
        self._handover = StateHandover(
            self._bots.shared, self.reactor, timers.scale, request=self._request_state, relay=self._relay_state
        )
        self._ctcp: CtcpResponder | None = None
        self._state: StateFile | None = None
        self._lease_until = -inf
        self._number = 0
        self._pending_sends: dict[int, Deferred[LineOutcome]] = {}
        self._irc_closed: Deferred[None] | None = None
        self._left: Deferred[None] | None = None
        self._irc: ActiveConnection | None = None
        if config.irc is not None:
            if config.irc.ctcp_version:
                self._ctcp = CtcpResponder(config.irc.ctcp_version, self.reactor.seconds)
            self._irc = ActiveConnection(
                config.irc,
                self.reactor,
                on_opened=self._irc_opened,
                on_closed=self._irc_was_closed,
                on_received=self._irc_received,
                on_answered=self._irc_answered,
                on_prefix_changed=self._irc_renamed,
            )
        self._guardian: GuardianProcess | None = None
        self._no_guardian_reason = ""
        if config.guardian and config.network_size != 1:
            if not can_guard():
                self._no_guardian_reason = "this system cannot notify a process of the end of another"
            elif not self._dialer.dialable:
                self._no_guardian_reason = "this node opens no link over TCP, TLS or UDP; pass --link for another node"
            else:
                self._guardian = GuardianProcess(self.reactor, self._dialer.dialable, secret, timers.scale)
        self._control = ControlFactory(lambda gone: HydraControl(self, gone))
        if config.control is not None:
            self._ports.add("control", config.control, self._control)
        if config.metrics is not None:
            self._ports.add("metrics", config.metrics, metrics_site(HydraCollector(self)))

    # For applications

    @property
    def view(self) -> IrcView:
        """Who is in the channels, as far as the lines have told this node."""
        return self._bots.view

    def say(self, line: str | bytes, *, retry: bool = False) -> Deferred[Outcome]:
        """Send a line to IRC through the leader; return a Deferred of the outcome.

        :param retry: at-least-once: resend if the outcome is uncertain. The default is at-most-once.

        The Deferred fails with :class:`~fyrehose_twisted.errors.UnencodableMessage` if ``line`` is not one line that
        nodes may send, and with :class:`~fyrehose_twisted.errors.PublishQueueFull`.
        """
        try:
            saying = self.say_and_tell(line, retry=retry)
        except FyrehoseError as error:
            return fail(error)
        outcome: Deferred[Outcome] = Deferred()
        saying.addCallback(lambda said: outcome.callback(said.outcome))
        return outcome

    def say_and_tell(self, line: str | bytes, *, retry: bool = False) -> Deferred[LineOutcome]:
        """Send a line as :meth:`say` does; the Deferred has the reason beside the outcome.

        :raises UnencodableMessage: if ``line`` is not one line that nodes may send.
        :raises PublishQueueFull: if the send queue is full.
        """
        node, links = self.node, self.links
        if node is None or links is None or not self._accepting or self._error is not None:
            return succeed(LineOutcome(None, Outcome.REFUSED, "not-running"))
        self._number += 1
        number = self._number
        data = line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line
        node.say(data, number, links.now(), retry=retry)
        saying = self._pending_sends[number] = Deferred()
        links.flush_soon()
        return saying

    def state(self) -> NodeStatus | None:
        """Return the status of the node; ``None`` before the start."""
        if self.node is None or self.links is None:
            return None
        state = self.node.state(self.links.now())
        counts = {**state.counts, **self.counters, **self._bots.shared.counters}
        if self._bots.view.overflows:
            counts["view_overflows"] = self._bots.view.overflows
        if self._ctcp is not None:
            counts |= {"ctcp_answered": self._ctcp.answered, "ctcp_limited": self._ctcp.limited}
        counts |= {f"links_{name}": count for name, count in self.links.counters.items()}
        if self._irc is not None:
            counts |= {f"irc_{name}": count for name, count in self._irc.counters.items()}
        if self._ports.udp is not None:
            counts |= {f"udp_{name}": count for name, count in self._ports.udp.counters.items()}
        return state._replace(counts=counts)

    def status(self) -> dict[str, Any]:
        """Return the status as JSON-compatible objects."""
        state = self.state()
        if state is None:
            return {"network": self.config.network, "tag": self.config.tag, "role": None, "why": "it is starting"}
        return {
            **state._asdict(),
            "role": state.role.value,
            "nodes": [node._asdict() for node in state.nodes],
            "links": [link._asdict() for link in state.links],
            "server": "" if self._irc is None else self._irc.server,
            "listening": self._ports.addresses,
        }

    # Settings

    def reload(self) -> list[str]:
        """Read the settings again, as on SIGHUP, and return what has changed, in words.

        :raises FyrehoseError: if they cannot be read or used; nothing is changed then.
        """
        return [] if self._read_settings is None else self.reconfigure(self._read_settings())

    def reconfigure(self, settings: HydraSettings) -> list[str]:
        """Replace settings of the running node, and return what has changed, in words.

        Open links stay. A leader joins and leaves channels at once; other nodes do so when they lead.

        :raises ConfigurationError: if a node without a secret is given one or loses it, or channels have no IRC server;
            nothing is changed then.
        """
        config, changed = self.config, []
        if (settings.secret is None) != (config.secret is None):
            raise ConfigurationError("a node can neither get its first secret nor lose it without a restart")
        if settings.channels and config.irc is None:
            raise ConfigurationError("channels require --irc")
        config = replace(config, secret=settings.secret, other_secrets=settings.other_secrets)
        if config.irc is not None:
            config = replace(config, irc=replace(config.irc, channels=settings.channels))
        if settings.secret is not None and config.settings != replace(self.config.settings, channels=settings.channels):
            self._dialer.set_secrets(settings.secret, *settings.other_secrets)
            if self._guardian is not None:
                self._guardian.set_secret(settings.secret)
            changed.append(f"the secret, and {pluralize(len(settings.other_secrets), 'other secret')} accepted")
        changed += self._change_channels(settings.channels)
        if settings.bots is not None and settings.bots != self._bots.bots:
            self._bots.replace(settings.bots)
            changed.append("bots " + (", ".join(type(bot).__name__ for bot in settings.bots) or "none"))
            if self.node is not None and self.node.role is not Role.LEADER:
                # New bots have no state yet.
                self._bots.shared.invalidate()
                self._handover.check()
        self.config = config
        return changed

    def _change_channels(self, channels: Sequence[Channel]) -> list[str]:
        """Let the leader join and leave channels, and return what has changed."""
        if self._irc is None:
            return []
        before = {casefold(channel.name): channel for channel in self._irc.config.channels}
        after = {casefold(channel.name): channel for channel in channels}
        self._irc.config = replace(self._irc.config, channels=tuple(channels))
        joined = [channel for folded, channel in after.items() if folded not in before]
        left = [channel for folded, channel in before.items() if folded not in after]
        if self.node is not None and self.node.role is Role.LEADER:
            for line in (
                *(f"JOIN {channel.name} {channel.key or ''}".rstrip() for channel in joined),
                *(f"PART {channel.name}" for channel in left),
            ):
                self._send_reply(line)
        names = [f"joins {channel.name}" for channel in joined] + [f"leaves {channel.name}" for channel in left]
        return [", ".join(names)] if names else []

    # Starting and stopping

    def _halt(self, error: Exception) -> None:
        if self.links is not None:
            self.links.halt()
        if self._irc is not None:
            # The promises can no longer be kept, so no more lines may be sent.
            self._irc.close("failed", graceful=False)

    def _start_node(self) -> None:
        config, now = self.config, float(self.reactor.seconds())
        vow, remembers = DurableState(), False
        if config.state is not None:
            quiet = config.timers.promise
            state = self._state = StateFile(
                config.state, config.network, promise_period=quiet, now=now, sync=config.sync
            )
            vow, remembers = state.durable, state.remembers
        if config.storage is not None:
            lines = config.storage.open(config.network, self.reactor, self.fail)
            # Otherwise a new network would reuse line numbers that other nodes have stored.
            vow = vow._replace(term=max(vow.term, lines.term))
            damages: list[object] = []
            count = self._bots.replay(lines.replay(damages.append))
            self.log.info(
                "the journal ends in term {term}; lines replayed to bots: {count:,}", term=lines.term, count=count
            )
            for damage in damages:
                self.log.error("the journal is damaged: {damage}", damage=damage)
        if not remembers:
            self.log.info(
                "earlier promises of this node are unknown; it supports no leader for {seconds:g} s",
                seconds=config.timers.promise,
            )
        if self._state is None and config.storage is None:
            # No earlier term is known here, and line numbers restart in each term.
            config = self.config = replace(config, first_term=int(time.time()) * TERMS_PER_SECOND)
        self._ports.bind()
        self._ports.report_failures(self.fail)
        self.node = HydraNode(config, self._rng, now, durable=vow, remembers=remembers)
        self.links = StreamDriver(
            self.node,
            self._build_connection,
            self.reactor,
            on_event=self._on_event,
            persist=None if self._state is None else self._persist,
            on_failure=self.fail,
            endpoint_factory=self._dialer.endpoint_for,
            limits=self._limits,
        )
        self._ports.open(self.links.factory)
        self.log.info("node {tag} of network {network}", tag=config.tag, network=config.network)
        if self._guardian is not None:
            self._guardian.start()
        elif self._no_guardian_reason:
            text = "no guardian: {why}. If this node is killed, the others notice only by its silence"
            self.log.warn(text, why=self._no_guardian_reason)
        self.links.flush()
        if self._error is None:
            systemd_notifier.ready(self.reactor, f"node {config.tag} of network {config.network}")

    async def _stop_node(self) -> None:
        node, links = self.node, self.links
        left = False
        if node is not None and links is not None and self._error is None:
            self._left = Deferred()
            self._left.addTimeout(LEAVE_TIMEOUT, self.reactor)
            self._note_lease()
            node.leave(links.now())
            links.flush()
            with suppress(DeferredTimeout):
                await self._left
                left = True
        await self._leave_irc()
        self._handover.stop()
        if self._guardian is not None:
            await self._guardian.stop(goodbye_sent=left)
        self._control.close()
        await self._ports.close()
        if links is not None:
            await links.stop()
        await self._ports.close_udp()
        await self._dialer.close()
        self._fail_pending(None)
        if self._state is not None:
            self._state.close()
        await self._close_storage(self.config.storage)

    async def _leave_irc(self) -> None:
        """Close the connection to IRC and wait until it is closed."""
        if self._irc is None or not self._irc.server:
            return
        closed = self._irc_closed = Deferred()
        self._irc.close("stopping", graceful=False)
        closed.addTimeout(IRC_CLOSE_TIMEOUT, self.reactor)
        with suppress(DeferredTimeout):
            await closed

    def _persist(self, durable: DurableState) -> None:
        assert self._state is not None, "persist is set only with a state file"
        self._state.save(durable, 0 if self.node is None else self.node.id or 0)

    def _fail_pending(self, error: Exception | None) -> None:
        reason = "stopped" if error is None else "failed"
        sayings, self._pending_sends = self._pending_sends, {}
        for number, saying in sayings.items():
            saying.callback(LineOutcome(number, Outcome.UNCERTAIN, reason))

    # Events of the node

    def _on_event(self, event: Any) -> None:
        self._note_lease()
        match event:
            case ToIrc():
                self._send_to_irc(event)
            case AskIrc(number):
                if self._irc is not None and self._error is None and self.reactor.seconds() < self._lease_until:
                    self._irc.ask(number)
            case LinesReceived() | LinesMissed():
                self._store_lines(event)
                if isinstance(event, LinesReceived):
                    self._observers.notify("lines_received", event)
                    self._bots.lines_received(event)
                    self._answer_ctcp(event)
                else:
                    log_event(self.log, event)
                    self._observers.notify("lines_missed", event)
                    self._bots.lines_missed(event)
                    self._handover.check()
            case StateWanted():
                self._handover.wanted()
            case LineOutcome(token, _, _):
                saying = self._pending_sends.pop(token, None) if isinstance(token, int) else None
                if saying is not None:
                    saying.callback(event)
            case OpenIrc():
                self._open_irc()
            case CloseIrc(reason, polite):
                self._close_irc(reason, polite)
            case LeftNetwork():
                if self._left is not None and not self._left.called:
                    self._left.callback(None)
            case _:
                log_event(self.log, event)
                self._membership_changed(event)

    def _membership_changed(self, event: Any) -> None:
        node = self.node
        assert node is not None
        if isinstance(event, LeaderChanged):
            self.leader = event
            self._observers.notify("leader_changed", event)
        if isinstance(event, RoleChanged | IdChanged) and self._guardian is not None:
            self._guardian.set_node_id(node.id if node.role in MEMBER_ROLES else None)
        if isinstance(event, RoleChanged):
            self._bots.leading(node.role is Role.LEADER)
            self._handover.role_changed(node.role)
        elif isinstance(event, LeaderChanged):
            self._handover.check()

    def _note_lease(self) -> None:
        """Record the end of the lease, which the node forgets when it steps down."""
        until = None if self.node is None else self.node.lease_until
        if until is not None:
            self._lease_until = max(until, self._lease_until)

    def _store_lines(self, event: LinesReceived | LinesMissed) -> None:
        lines = None if self.config.storage is None else self.config.storage.lines
        if lines is not None and self._error is None:
            try:
                lines.append(event)
            except FyrehoseError as error:
                self.fail(error)

    def _send_reply(self, line: str) -> None:
        """Send the reply of a bot; log a reply that was not sent."""

        def said(result: LineOutcome) -> None:
            if result.outcome is not Outcome.SAID:
                self.log.warn("the reply of a bot is {outcome}: {why}", outcome=result.outcome.value, why=result.reason)

        self.say_and_tell(line).addCallback(said)

    def _answer_ctcp(self, event: LinesReceived) -> None:
        """Answer CTCP requests to the leader's nick."""
        if self._ctcp is None or self.node is None or self.node.role is not Role.LEADER:
            return
        for line in event.lines:
            if b" :\x01" in line:
                parsed = parse_line(line, event.term, event.first)
                is_private = parsed.command == "PRIVMSG" and not parsed.ours and parsed.reply_to == parsed.nick
                answer = self._ctcp.reply(parsed.nick, parsed.text) if is_private else None
                if answer is not None:
                    with suppress(FyrehoseError):  # The queue is full.
                        self._send_reply(answer)

    def _request_state(self) -> bool:
        if self.node is None or self.links is None or self._error is not None:
            return False
        asked = self.node.request_state(self.links.now())
        self.links.flush_soon()
        return asked

    def _relay_state(self, lines: Sequence[bytes]) -> bool:
        if self.node is None or self.links is None or self._error is not None:
            return False
        relayed = self.node.relay_state(lines, self.links.now())
        self.links.flush_soon()
        return relayed

    # IRC

    def _send_to_irc(self, event: ToIrc) -> None:
        handed = False
        if self._irc is not None and self._error is None:
            # The clock is read here because the process may have been suspended since the node ran.
            handed = self.reactor.seconds() < event.deadline and self._irc.say(event.line)
        self._call_node("irc_handed", event, handed)

    def _open_irc(self) -> None:
        if self._irc is None:
            self._call_node("irc_closed", "this node has no --irc")
        elif self._error is None:
            view = self._bots.view
            self._irc.open(view.to_join(self._irc.config.channels), view.wanted_nick)

    def _close_irc(self, reason: str, graceful: bool) -> None:
        if self._irc is None:
            return
        # A graceful close writes queued lines, which only a lease allows. An abrupt close may lose lines in the kernel.
        self._irc.close(reason, graceful=graceful and self.reactor.seconds() < self._lease_until)

    def _irc_opened(self, prefix: bytes) -> None:
        assert self._irc is not None, "the event comes from it"
        self._call_node("irc_opened", prefix=prefix, limits=self._irc.limits)

    def _irc_received(self, lines: Sequence[bytes]) -> None:
        self._call_node("irc_received", lines)

    def _irc_answered(self, number: int) -> None:
        self._call_node("irc_answered", number)

    def _irc_renamed(self, prefix: bytes) -> None:
        if self.node is not None and self.links is not None:
            self.node.irc_renamed(prefix, self.links.now())

    def _irc_was_closed(self, reason: str) -> None:
        self._call_node("irc_closed", reason)
        if self._irc_closed is not None and not self._irc_closed.called:
            self._irc_closed.callback(None)

    def _call_node(self, method: str, *arguments: Any, **named: Any) -> None:
        """Report an IRC event to the node and carry out its outputs."""
        if self.node is not None and self.links is not None and self._error is None:
            getattr(self.node, method)(*arguments, now=self.links.now(), **named)
            self.links.flush_soon()
