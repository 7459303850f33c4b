"""A small process that watches over a node, and says its goodbye when it can no longer do so itself.

Nobody may help another node to lead before what was promised to the leader is over, unless the leader itself says that
it is none any more (rule S5 of the reading of document 002). One that was killed cannot. But its connections are closed
once the kernel has ended it, and this process, its child, is told of that by the kernel and by nothing else: a
descriptor of the parent's process (``pidfd_open``). Then, and only then, it sends DROP of the node's id over links that
it has kept open for that. A parent that is stopped, or that no longer speaks to it, is alive.

It is told what to do on standard input, in lines of JSON: first ``parent``, ``secret`` (in hexadecimal digits, or
null), ``links`` (link strings) and ``scale`` (of the timers), then ``id`` (or null) whenever that changes, and in the
end ``quit``.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.protocol import HydraProtocol
from fyrehose_twisted.hydra.wire.messages import GUARDIAN_TAG, Drop, Hello, Keepalive, Knock, Message
from fyrehose_twisted.net.connection import NodeConnection
from fyrehose_twisted.net.connector import EndpointFactory, PendingConnects

REDIAL_DELAYS = 0.5, 2.0
"""Seconds until a link is opened anew: first, and at most; at the scale of the timers."""
FINAL_DIAL_TIMEOUT = 5.0
"""Seconds for which it tries to reach somebody when the parent is gone and no link was bound."""
FLUSH_TIMEOUT = 2.0
"""Seconds that the goodbye may take to leave."""
DIAL_TIMEOUT = 10.0
"""Seconds until a link must be open."""


class GuardianLink(HydraProtocol):
    """One link, bound to the node's id."""

    def __init__(self, guardian: Guardian, address: Address) -> None:
        super().__init__()
        self.address = address
        self.id = guardian.id
        self.bound = False
        self.knocked_at = 0.0
        self._guardian = guardian

    def connection_ready(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.protocol.HydraProtocol`."""
        self._guardian.link_opened(self)

    def hydra_received(self, messages: Sequence[Message]) -> None:
        """See :class:`~fyrehose_twisted.hydra.protocol.HydraProtocol`."""
        self._guardian.link_received(self, messages)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection has ended."""
        super().connectionLost(reason)
        self._guardian.link_ended(self)


class Guardian:
    """Keeps links open, and sends the DROP.

    :param endpoint_for: how a link string is dialled.
    :param say: tells people something.
    :ivar id: that of the node now, ``None`` while it is in no network.
    :ivar over: fires when there is nothing more to do.
    """

    def __init__(
        self,
        reactor: Any,
        links: Sequence[str],
        timers: Timers,
        endpoint_for: EndpointFactory,
        *,
        report: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.id: int | None = None
        self.finished: Deferred[None] = Deferred()
        self._reactor = reactor
        self._timers = timers
        self._report = report
        self._connects = PendingConnects(reactor, endpoint_for, self._dial_failed, DIAL_TIMEOUT)
        self._redial_delays: dict[Address, float] = dict.fromkeys([(link, 0) for link in links], 0.0)
        """By link: seconds before it was dialled the last time."""
        self._links: dict[Address, GuardianLink] = {}
        self._delayed_calls: dict[Address, Any] = {}
        """By link: when to dial it, or to look after it."""
        self._number = 0
        self._parent_has_exited = False
        self._drops_sent = 0

    # What it is told

    def set_node_id(self, node_id: int | None) -> None:
        """The node has this id now."""
        if node_id == self.id or self._parent_has_exited:
            return
        self.id = node_id
        for address in self._redial_delays:
            post = self._links.pop(address, None)
            if post is not None:
                post.close()
            self._cancel(address)
            if node_id is not None:
                self._redial_delays[address] = 0.0
                self._dial(address)

    def parent_exited(self) -> None:
        """The kernel says that the parent has ended."""
        if self._parent_has_exited:
            return
        self._parent_has_exited = True
        if self.id is None or not self._redial_delays:
            self._end()
            return
        bound = [post for post in self._links.values() if post.bound]
        self._report(f"node {self.id} has ended without a goodbye; links that are ready to say it: {len(bound)}")
        for post in bound:
            self._send_drop(post)
        self._reactor.callLater(FLUSH_TIMEOUT if bound else FINAL_DIAL_TIMEOUT, self._end)

    def shut_down(self) -> None:
        """The node said goodbye itself."""
        self._parent_has_exited = True
        for post in tuple(self._links.values()):  # One that ends at once is taken out.
            post.close()
        self._end()

    # Links

    def link_opened(self, post: GuardianLink) -> None:
        """A link is open."""
        if post.id is None or post.id != self.id or post.address in self._links:
            post.close()
            return
        self._links[post.address] = post
        post.last_activity_at = post.knocked_at = self._reactor.seconds()
        post.send([Knock(post.id, GUARDIAN_TAG)])
        self._schedule_check(post)

    def link_received(self, post: GuardianLink, messages: Sequence[Message]) -> None:
        """Something came; nearly all of it is of no interest."""
        post.last_activity_at = self._reactor.seconds()
        if post.bound or post.id is None or not any(isinstance(m, Hello) and m.ind == post.id for m in messages):
            return
        post.bound = True
        self._redial_delays[post.address] = 0.0
        if self._parent_has_exited:
            self._send_drop(post)
            self._reactor.callLater(FLUSH_TIMEOUT, self._end)
        else:
            links = sum(one.bound for one in self._links.values())
            self._report(f"stands by for node {post.id}, {links} of {len(self._redial_delays)} links are ready")

    def link_ended(self, post: GuardianLink) -> None:
        """A link has ended."""
        if self._links.get(post.address) is post:
            del self._links[post.address]
            self._cancel(post.address)
            if self._parent_has_exited and self._drops_sent:
                if not any(other.bound for other in self._links.values()):
                    self._end()
            else:
                self._schedule_dial(post.address)

    def _send_drop(self, post: GuardianLink) -> None:
        assert self._parent_has_exited, "a parent that lives says goodbye itself"
        assert post.id is not None, "it is bound"
        self._drops_sent += 1
        post.send([Drop(post.id, "guardian")])
        post.close()

    def _dial(self, address: Address) -> None:
        self._delayed_calls.pop(address, None)

        def make() -> NodeConnection:
            post = GuardianLink(self, address)
            self._number += 1
            post.peer, post.source = Peer(address, self._number, True), address[0]
            return post

        self._connects.connect(address, make)

    def _dial_failed(self, address: Address, reason: str) -> None:
        if address not in self._links:
            self._schedule_dial(address)

    def _schedule_dial(self, address: Address) -> None:
        if self.id is None or address in self._delayed_calls or self.finished.called:
            return
        first, most = REDIAL_DELAYS
        self._redial_delays[address] = wait = min(max(self._redial_delays[address] * 2, first), most)
        self._delayed_calls[address] = self._reactor.callLater(wait * self._timers.scale, self._dial, address)

    def _schedule_check(self, post: GuardianLink) -> None:
        self._delayed_calls[post.address] = self._reactor.callLater(self._timers.max_ping / 3, self._check_link, post)

    def _check_link(self, post: GuardianLink) -> None:
        del self._delayed_calls[post.address]
        now, most = self._reactor.seconds(), self._timers.max_ping
        if now - post.last_activity_at > 1.5 * most or (not post.bound and now - post.knocked_at > most / 2):
            # Whoever is there may not have known the node yet.
            post.abort("silent")
            return
        post.send([Keepalive()])
        self._schedule_check(post)

    def _cancel(self, address: Address) -> None:
        call = self._delayed_calls.pop(address, None)
        if call is not None:
            call.cancel()

    def _end(self) -> None:
        if self.finished.called:
            return
        for address in tuple(self._delayed_calls):
            self._cancel(address)
        self._connects.cancel()
        self.finished.callback(None)


class _StdinCommands:
    """What comes on standard input.

    :param start: makes a guardian of the first line.
    """

    def __init__(self, start: Callable[[dict[str, Any]], Guardian]) -> None:
        self.guardian: Guardian | None = None
        self._start = start
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Follow the lines that are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if self.guardian is None:
                self.guardian = self._start(message)
            elif "quit" in message:
                self.guardian.shut_down()
            else:
                self.guardian.set_node_id(message["id"])


@implementer(IReadDescriptor)
class _ReadDescriptor:
    """A descriptor that the reactor reads."""

    def __init__(self, descriptor: int, ready: Callable[[], object]) -> None:
        self._descriptor = descriptor
        self._ready = ready

    def fileno(self) -> int:
        """Twisted: what to wait for."""
        return self._descriptor

    def doRead(self) -> None:
        """Twisted: there is something."""
        self._ready()

    def connectionLost(self, reason: Any) -> None:
        """Twisted: it reports an end, or the reactor has stopped."""
        self._ready()

    def logPrefix(self) -> str:
        """Twisted: what to call it in the log."""
        return "guardian"


def watch_parent(parent: int, reactor: Any, on_exit: Callable[[], object]) -> None:
    """Call ``on_exit`` when the kernel says that the parent has ended, and never before."""

    def is_gone() -> bool:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def look() -> None:
        if is_gone():
            reactor.removeReader(watched)
            on_exit()

    # The number could be another process's by now; but not if it was the parent's before and is afterwards.
    descriptor = -1
    if os.getppid() == parent:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(parent)
    if os.getppid() != parent:
        on_exit()
        return
    watched = _ReadDescriptor(descriptor, look)
    reactor.addReader(watched)


def main() -> None:
    """Run as a process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # They are the parent's, who may take its time over them.
    from twisted.internet import reactor as plain_reactor

    from fyrehose_twisted.hydra.transports.dialer import Dialer
    from fyrehose_twisted.net.boottime import BoottimeReactor

    reactor: Any = BoottimeReactor(plain_reactor)

    def stop(result: object) -> None:
        with suppress(Exception):
            reactor.stop()

    def say(text: str) -> None:
        with suppress(Exception):
            print(f"hydra guardian: {text}", file=sys.stderr, flush=True)

    def start(message: dict[str, Any]) -> Guardian:
        secret = message["secret"]
        timers = Timers(message["scale"])
        places = Dialer(reactor, message["links"], None if secret is None else bytes.fromhex(secret), timers)
        guardian = Guardian(reactor, message["links"], timers, places.endpoint_for, report=say)
        guardian.finished.addCallback(stop)
        # Not before the id was read, which may be there already: the parent may have ended meanwhile.
        reactor.callLater(0, watch_parent, message["parent"], reactor, guardian.parent_exited)
        return guardian

    def read() -> None:
        try:
            data = os.read(0, 65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            instructions.feed(data)
            return
        reactor.removeReader(standard_input)
        if instructions.guardian is None:
            reactor.callWhenRunning(stop, None)

    instructions = _StdinCommands(start)
    os.set_blocking(0, False)
    standard_input = _ReadDescriptor(0, read)
    reactor.addReader(standard_input)
    reactor.run(installSignalHandlers=False)


if __name__ == "__main__":
    main()
