"""A node of a hydra network as a Twisted service."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.logger import Logger

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.hydra.config import TERMS_A_SECOND, NodeConfig
from fyrehose_twisted.hydra.events import (
    AskIrc,
    CloseIrc,
    IdChanged,
    LeaderChanged,
    Left,
    Missed,
    OpenIrc,
    Outcome,
    Received,
    Role,
    RoleChanged,
    Said,
    ToIrc,
)
from fyrehose_twisted.hydra.guardian.launcher import Guarding, can_guard
from fyrehose_twisted.hydra.irc.active import ActiveConnection, IrcConfig
from fyrehose_twisted.hydra.irc.bots import Bots
from fyrehose_twisted.hydra.node.durable_state import Vow
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.node.status import NodeState
from fyrehose_twisted.hydra.protocol import HydraProtocol
from fyrehose_twisted.hydra.service.control import Control
from fyrehose_twisted.hydra.service.listening import Doors
from fyrehose_twisted.hydra.service.metrics import HydraCollector
from fyrehose_twisted.hydra.service.observers import Listeners, log_event
from fyrehose_twisted.hydra.service.state_file import StateFile
from fyrehose_twisted.hydra.service.storage import Keeping
from fyrehose_twisted.hydra.transports.auth import Proving
from fyrehose_twisted.hydra.transports.dialer import PATIENCE, Places
from fyrehose_twisted.hydra.wire.codec import HydraCodec
from fyrehose_twisted.net.boottime import SteadyClock
from fyrehose_twisted.net.connection import Link, LinkLimits
from fyrehose_twisted.net.control.server import ControlFactory
from fyrehose_twisted.net.metrics import metrics_site
from fyrehose_twisted.net.stream_driver import Links
from fyrehose_twisted.process.sd_notify import supervisor
from fyrehose_twisted.process.shutdown import end_process
from fyrehose_twisted.process.sighup import Reloading

DEFAULT_PORT = 6174
DEFAULT_LISTEN = f"tcp:{DEFAULT_PORT}:interface=127.0.0.1"

GOODBYE = 3.0
"""Seconds that a node may take to say goodbye."""
CLOSING = 1.5
"""Seconds that the connection to IRC may take to close after that; then it is cut off."""
MEMBERS = frozenset((Role.COHORT, Role.LEADER, Role.VOTER, Role.NOMINEE))
"""Roles of a node that belongs to a network."""


class HydraService(Service):
    """One node of a network, and what it needs to run.

        node = HydraService(NodeConfig(tag="a", found=True), irc=IrcConfig(("127.0.0.1:6667",), "bot", channels))
        node.setServiceParent(application)
        outcome = await node.say("PRIVMSG #c :hi")

    :param config: what the node is told; its targets are made of ``links``.
    :param links: link strings of what it keeps open, see :mod:`~fyrehose_twisted.hydra.transports.link_url`.
    :param listen: where others reach it: server endpoints, or ``udp:PORT:interface=ADDRESS``.
    :param irc: where it connects to as leader; without it, it cannot stay one.
    :param secret: what all nodes of the network share.
    :param state: file with what it promised; without it, a node keeps quiet for a while after each start.
    :param sync: make promises survive a power failure.
    :param keeping: opens a journal for the lines from IRC.
    :param control: where commands on this machine ask, a server endpoint.
    :param metrics: where to serve Prometheus metrics, a server endpoint.
    :param bots: of the interface :class:`~fyrehose_twisted.interfaces.IBot`.
    :param guardian: start a process that says goodbye if this one is killed.
    :param protocol: what speaks on each link.
    :param failed: told what stopped it; by default the process ends, with status 1.
    :ivar node: the node, once it runs.
    :ivar links: its links.
    :ivar leader: who leads, as far as it was told.
    :ivar counts: what the service itself counted.
    """

    log = Logger()

    def __init__(
        self,
        config: NodeConfig,
        links: Sequence[str] = (),
        listen: Sequence[str] = (DEFAULT_LISTEN,),
        *,
        irc: IrcConfig | None = None,
        secret: bytes | None = None,
        state: Path | None = None,
        sync: bool = False,
        keeping: Keeping | None = None,
        control: str | None = None,
        metrics: str | None = None,
        bots: Sequence[Any] = (),
        guardian: bool = True,
        protocol: type[HydraProtocol] = HydraProtocol,
        limits: LinkLimits | None = None,
        failed: Callable[[Exception], object] | None = None,
        rng: Random | None = None,
        reactor: Any = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        # What a node promises goes by a clock that nobody sets.
        self.reactor: Any = reactor if isinstance(reactor, SteadyClock) else SteadyClock(reactor)
        self.node: HydraNode | None = None
        self.links: Links | None = None
        self.leader: LeaderChanged | None = None
        self.counts: Counter[str] = Counter()
        proving = None if secret is None else Proving(secret, self.reactor)
        self._doors = Doors(self.reactor, listen, secret, config.timers, proving=proving)
        self._places = Places(self.reactor, links, secret, config.timers, proving=proving, udp=self._doors.udp)
        self._places.check()
        self.config = replace(config, targets=self._places.targets)
        self._codec = HydraCodec()
        self._protocol = protocol
        self._limits = link_limits(config) if limits is None else limits
        self._state_path = state
        self._sync = sync
        self._keeping = keeping
        self._rng = SystemRandom() if rng is None else rng
        self._failed = failed
        self._error: Exception | None = None
        self._usable = False
        self._listeners = Listeners()
        self._bots = Bots(bots, self._answer)
        self._state: StateFile | None = None
        self._lease_until = -inf
        self._number = 0
        self._sayings: dict[int, Deferred[Said]] = {}
        self._irc_closed: Deferred[None] | None = None
        self._left: Deferred[None] | None = None
        self._reloading = Reloading.of_nothing(reactor)
        self._irc: ActiveConnection | None = None
        if irc is not None:
            self._irc = ActiveConnection(
                irc,
                self.reactor,
                opened=self._irc_opened,
                closed=self._irc_was_closed,
                received=self._irc_received,
                answered=self._irc_answered,
                renamed=self._irc_renamed,
            )
        self._guarding: Guarding | None = None
        self._unguarded = ""
        if guardian and config.network_size != 1:
            if not can_guard():
                self._unguarded = "this system does not tell one process of the end of another"
            elif not self._places.dialable:
                self._unguarded = "this node opens no link over TCP, TLS or UDP; give it --link to another node"
            else:
                self._guarding = Guarding(self.reactor, self._places.dialable, secret, config.timers.scale)
        self._control = ControlFactory(lambda gone: Control(self, gone))
        if control is not None:
            self._doors.add("control", control, self._control)
        if metrics is not None:
            self._doors.add("metrics", metrics, metrics_site(HydraCollector(self)))

    # For applications

    def say(self, line: str | bytes, *, retry: bool = False) -> Deferred[Outcome]:
        """Have a line said on IRC; return a Deferred of what became of it.

        :param retry: rather twice than not at all; otherwise once at most.

        It fails with :class:`~fyrehose_twisted.errors.UnencodableMessage` if it is not one line that a node may have
        said, and with :class:`~fyrehose_twisted.errors.PublishQueueFull`.
        """
        try:
            saying = self.say_and_tell(line, retry=retry)
        except FyrehoseError as error:
            return fail(error)
        outcome: Deferred[Outcome] = Deferred()
        saying.addCallback(lambda said: outcome.callback(said.outcome))
        return outcome

    def say_and_tell(self, line: str | bytes, *, retry: bool = False) -> Deferred[Said]:
        """As :meth:`say`, but for all that is known of what became of the line.

        :raises UnencodableMessage: if it is not one line that a node may have said.
        :raises PublishQueueFull: if too many wait.
        """
        node, links = self.node, self.links
        if node is None or links is None or not self._usable or self._error is not None:
            return succeed(Said(None, Outcome.REFUSED, "not-running"))
        self._number += 1
        number = self._number
        data = line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line
        node.say(data, number, links.now(), retry=retry)
        saying = self._sayings[number] = Deferred()
        links.flush_soon()
        return saying

    def listen(self, listener: Any) -> None:
        """Tell an :class:`~fyrehose_twisted.interfaces.IIrcListener` of lines and leaders from now on."""
        self._listeners.add(listener)

    def unlisten(self, listener: Any) -> None:
        """Tell it no more."""
        self._listeners.discard(listener)

    def state(self) -> NodeState | None:
        """Return how the node looks, ``None`` while there is none."""
        if self.node is None or self.links is None:
            return None
        state = self.node.state(self.links.now())
        counts = {**state.counts, **self.counts}
        counts |= {f"links_{name}": count for name, count in self.links.counters.items()}
        if self._irc is not None:
            counts |= {f"irc_{name}": count for name, count in self._irc.counts.items()}
        if self._doors.udp is not None:
            counts |= {f"udp_{name}": count for name, count in self._doors.udp.counters.items()}
        return state._replace(counts=counts)

    def status(self) -> dict[str, Any]:
        """Return the same as plain objects."""
        state = self.state()
        if state is None:
            return {"network": self.config.network, "tag": self.config.tag, "role": None, "why": "it is starting"}
        return {
            **state._asdict(),
            "role": state.role.value,
            "nodes": [node._asdict() for node in state.nodes],
            "links": [link._asdict() for link in state.links],
            "server": "" if self._irc is None else self._irc.server,
            "listening": self._doors.places,
        }

    # Starting and stopping

    def privilegedStartService(self) -> None:
        """Twisted: bind ports, while there may be privileges."""
        super().privilegedStartService()
        self._doors.bind()

    def startService(self) -> None:
        """Twisted: start."""
        super().startService()
        self._usable = True
        self._reloading.start()
        try:
            self._start()
        except FyrehoseError as error:
            self.fail(error)
        except Exception as error:
            self.log.failure("the node cannot start")
            self.fail(error)

    def stopService(self) -> Deferred[None]:
        """Twisted: say goodbye, leave IRC for certain, and stop."""
        super().stopService()
        self._usable = False
        return Deferred.fromCoroutine(self._stop())

    def fail(self, error: Exception) -> None:
        """Stop because of ``error``."""
        if self._error is not None:
            return
        self._error = error
        self.log.critical("stopping: {error}", error=error)
        if self.links is not None:
            self.links.halt()
        if self._irc is not None:
            # What it promises can no longer be kept, so nothing more may be said.
            self._irc.close("failed", polite=False)
        if self._failed is None:
            end_process(self.reactor)
        else:
            self._failed(error)
        self._give_up("failed")

    def _start(self) -> None:
        config, now = self.config, float(self.reactor.seconds())
        vow, remembers = Vow(), False
        if self._state_path is not None:
            quiet = config.timers.promise
            state = self._state = StateFile(self._state_path, config.network, quiet=quiet, now=now, sync=self._sync)
            vow, remembers = state.vow, state.remembers
        if self._keeping is not None:
            lines = self._keeping.open(config.network, self.reactor, self.fail)
            # Or who founds the network anew would give numbers to lines that others have already.
            vow = vow._replace(term=max(vow.term, lines.term))
            damages: list[object] = []
            count = self._bots.replay(lines.events(damages.append))
            self.log.info(
                "the journal goes up to term {term}; lines that bots saw: {count:,}", term=lines.term, count=count
            )
            for damage in damages:
                self.log.error("the journal is damaged: {damage}", damage=damage)
        if not remembers:
            self.log.info(
                "what this node may have promised before is not known: for {seconds:g} s it helps nobody to lead",
                seconds=config.timers.promise,
            )
        if self._state is None and self._keeping is None:
            # Nobody here knows which terms there were, and numbers of lines begin anew in each.
            config = self.config = replace(config, first_term=int(time.time()) * TERMS_A_SECOND)
        self._doors.bind()
        self._doors.failed(self.fail)
        self.node = HydraNode(config, self._rng, now, vow=vow, remembers=remembers)
        self.links = Links(
            self.node,
            self._make_link,
            self.reactor,
            tell=self._told,
            persist=None if self._state is None else self._persist,
            failed=self.fail,
            endpoint_for=self._places.endpoint_for,
            limits=self._limits,
        )
        self._doors.open(self.links.factory)
        self.log.info("node {tag} of network {network}", tag=config.tag, network=config.network)
        if self._guarding is not None:
            self._guarding.start()
        elif self._unguarded:
            text = "no guardian: {why}. If this node is killed, the others notice only by its silence"
            self.log.warn(text, why=self._unguarded)
        self.links.flush()
        if self._error is None:
            supervisor.ready(self.reactor, f"node {config.tag} of network {config.network}")

    async def _stop(self) -> None:
        self._reloading.stop()
        node, links = self.node, self.links
        left = False
        if node is not None and links is not None and self._error is None:
            self._left = Deferred()
            self._left.addTimeout(GOODBYE, self.reactor)
            self._note_lease()
            node.leave(links.now())
            links.flush()
            with suppress(DeferredTimeout):
                await self._left
                left = True
        await self._leave_irc()
        if self._guarding is not None:
            await self._guarding.stop(goodbye_said=left)
        self._control.close()
        await self._doors.close()
        if links is not None:
            await links.stop()
        await self._doors.end()
        await self._places.close()
        self._give_up("stopped")
        if self._state is not None:
            self._state.close()
        if self._keeping is not None:
            try:
                await self._keeping.close()
            except FyrehoseError as error:
                self.fail(error)

    async def _leave_irc(self) -> None:
        """Return when the connection to IRC is closed for certain."""
        if self._irc is None or not self._irc.server:
            return
        closed = self._irc_closed = Deferred()
        self._irc.close("stopping", polite=False)
        closed.addTimeout(CLOSING, self.reactor)
        with suppress(DeferredTimeout):
            await closed

    def _make_link(self) -> Link:
        return self._protocol(self._codec)

    def _persist(self, vow: Vow) -> None:
        assert self._state is not None, "or nothing is kept"
        self._state.keep(vow, 0 if self.node is None else self.node.id or 0)

    def _give_up(self, why: str) -> None:
        """Nothing more will be known of what was to be said here."""
        sayings, self._sayings = self._sayings, {}
        for number, saying in sayings.items():
            saying.callback(Said(number, Outcome.UNCERTAIN, why))

    # What the node tells

    def _told(self, event: Any) -> None:
        self._note_lease()
        match event:
            case ToIrc():
                self._to_irc(event)
            case AskIrc(number):
                if self._irc is not None and self._error is None and self.reactor.seconds() < self._lease_until:
                    self._irc.ask(number)
            case Received() | Missed():
                self._keep(event)
                if isinstance(event, Received):
                    self._listeners.lines_received(event)
                    self._bots.lines_received(event)
                else:
                    log_event(self.log, event)
                    self._listeners.lines_missed(event)
                    self._bots.lines_missed(event)
            case Said(token, _, _):
                saying = self._sayings.pop(token, None) if isinstance(token, int) else None
                if saying is not None:
                    saying.callback(event)
            case OpenIrc():
                self._open_irc()
            case CloseIrc(reason, polite):
                self._close_irc(reason, polite)
            case Left():
                if self._left is not None and not self._left.called:
                    self._left.callback(None)
            case _:
                log_event(self.log, event)
                self._changed(event)

    def _changed(self, event: Any) -> None:
        node = self.node
        assert node is not None
        if isinstance(event, LeaderChanged):
            self.leader = event
            self._listeners.leader_changed(event)
        if isinstance(event, RoleChanged | IdChanged) and self._guarding is not None:
            self._guarding.use(node.id if node.role in MEMBERS else None)
        if isinstance(event, RoleChanged):
            self._bots.leading(node.role is Role.LEADER)

    def _note_lease(self) -> None:
        """Remember how long the lease goes on at least, which a node forgets when it stops leading."""
        until = None if self.node is None else self.node.lease_until
        if until is not None:
            self._lease_until = max(until, self._lease_until)

    def _keep(self, event: Received | Missed) -> None:
        if self._keeping is not None and self._keeping.lines is not None and self._error is None:
            try:
                self._keeping.lines.take(event)
            except FyrehoseError as error:
                self.fail(error)

    def _answer(self, line: str) -> None:
        """A bot answers; what becomes of it, the log tells."""

        def said(result: Said) -> None:
            if result.outcome is not Outcome.SAID:
                self.log.warn("what a bot answered is {outcome}: {why}", outcome=result.outcome.value, why=result.why)

        self.say_and_tell(line).addCallback(said)

    # IRC

    def _to_irc(self, event: ToIrc) -> None:
        handed = False
        if self._irc is not None and self._error is None:
            # The clock is looked at here and not before: this process may just have stood still.
            handed = self.reactor.seconds() < event.until and self._irc.say(event.line)
        self._feed("irc_handed", event, handed)

    def _open_irc(self) -> None:
        if self._irc is None:
            self._feed("irc_closed", "this node has no --irc")
        elif self._error is None:
            self._irc.open()

    def _close_irc(self, reason: str, polite: bool) -> None:
        if self._irc is None:
            return
        # Who says goodbye writes what still waits, and that only a lease allows. Otherwise some of what was handed to
        # the kernel may not get there.
        self._irc.close(reason, polite=polite and self.reactor.seconds() < self._lease_until)

    def _irc_opened(self, prefix: bytes) -> None:
        assert self._irc is not None, "it told so"
        self._feed("irc_opened", prefix=prefix, limits=self._irc.limits)

    def _irc_received(self, lines: Sequence[bytes]) -> None:
        self._feed("irc_received", lines)

    def _irc_answered(self, number: int) -> None:
        self._feed("irc_answered", number)

    def _irc_renamed(self, prefix: bytes) -> None:
        if self.node is not None and self.links is not None:
            self.node.irc_renamed(prefix, self.links.now())

    def _irc_was_closed(self, reason: str) -> None:
        self._feed("irc_closed", reason)
        if self._irc_closed is not None and not self._irc_closed.called:
            self._irc_closed.callback(None)

    def _feed(self, what: str, *arguments: Any, **named: Any) -> None:
        """Tell the node something of IRC."""
        if self.node is not None and self.links is not None and self._error is None:
            getattr(self.node, what)(*arguments, now=self.links.now(), **named)
            self.links.flush_soon()


def link_limits(config: NodeConfig) -> LinkLimits:
    """Return what links may take: of those that others open, one machine has half at most."""
    most = config.max_links
    return LinkLimits(accepted=most, per_source=max(min(32, most), most // 2), dial=PATIENCE)
