"""Guardian process, which sends the DROP of a node whose process has died.

A promise to a leader binds until it expires, unless the leader itself resigns (rule S5 of the reading of document 002).
A killed leader cannot resign. The kernel closes its connections, however, and reports its exit to the guardian, its
child, through a descriptor of the parent process (``pidfd_open``). Only then does the guardian send a DROP of the
node's id, over links that it has kept open. A parent that is stopped or unresponsive counts as alive.

The guardian reads commands from standard input, one JSON object per line: first ``parent``, ``secret`` (hexadecimal, or
null), ``links`` (link strings) and ``scale`` (of the timers), then ``id`` (or null) at each change, and finally
``quit``.
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
"""Initial and largest delay before a redial, in seconds at the scale of the timers."""
FINAL_DIAL_TIMEOUT = 5.0
"""Seconds of dialling after the exit of the parent, if no link is bound."""
FLUSH_TIMEOUT = 2.0
"""Seconds in which the DROP must be written."""
DIAL_TIMEOUT = 10.0
"""Seconds in which a link must open."""


class GuardianLink(HydraProtocol):
    """One link of the guardian, bound to the id of the node."""

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
        """Twisted: handle the end of the connection."""
        super().connectionLost(reason)
        self._guardian.link_ended(self)


class Guardian:
    """Links of a guardian, and the DROP over them.

    :param endpoint_for: returns the endpoint of a link string.
    :param report: reports a text to the operator.
    :ivar id: current id of the node, ``None`` outside of a network.
    :ivar finished: fires when the guardian may exit.
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
        """Last redial delay in seconds, by link."""
        self._links: dict[Address, GuardianLink] = {}
        self._delayed_calls: dict[Address, Any] = {}
        """Pending dial or check, by link."""
        self._number = 0
        self._parent_has_exited = False
        self._drops_sent = 0

    # Commands

    def set_node_id(self, node_id: int | None) -> None:
        """Set the id of the node, and bind links to it."""
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
        """Send the DROP after the kernel reported the exit of the parent."""
        if self._parent_has_exited:
            return
        self._parent_has_exited = True
        if self.id is None or not self._redial_delays:
            self._end()
            return
        bound = [post for post in self._links.values() if post.bound]
        self._report(f"node {self.id} exited without a DROP; links ready to send it: {len(bound)}")
        for post in bound:
            self._send_drop(post)
        self._reactor.callLater(FLUSH_TIMEOUT if bound else FINAL_DIAL_TIMEOUT, self._end)

    def shut_down(self) -> None:
        """Close all links without a DROP, as the node sent its own."""
        self._parent_has_exited = True
        for post in tuple(self._links.values()):  # A link that ends at once is removed.
            post.close()
        self._end()

    # Links

    def link_opened(self, post: GuardianLink) -> None:
        """Handle the opening of a link."""
        if post.id is None or post.id != self.id or post.address in self._links:
            post.close()
            return
        self._links[post.address] = post
        post.last_activity_at = post.knocked_at = self._reactor.seconds()
        post.send([Knock(post.id, GUARDIAN_TAG)])
        self._schedule_check(post)

    def link_received(self, post: GuardianLink, messages: Sequence[Message]) -> None:
        """Handle received messages, of which only a HELLO matters."""
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
        """Handle the end of a link."""
        if self._links.get(post.address) is post:
            del self._links[post.address]
            self._cancel(post.address)
            if self._parent_has_exited and self._drops_sent:
                if not any(other.bound for other in self._links.values()):
                    self._end()
            else:
                self._schedule_dial(post.address)

    def _send_drop(self, post: GuardianLink) -> None:
        assert self._parent_has_exited, "a live parent sends its own DROP"
        assert post.id is not None, "the link is bound"
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
            # The peer may not have registered the node yet.
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
    """Reader of commands on standard input.

    :param start: creates the guardian from the first line.
    :param set_secret: replaces the secret for later dials.
    """

    def __init__(self, start: Callable[[dict[str, Any]], Guardian], set_secret: Callable[[bytes], None]) -> None:
        self.guardian: Guardian | None = None
        self._start = start
        self._set_secret = set_secret
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Carry out the commands of complete lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if self.guardian is None:
                self.guardian = self._start(message)
            elif "quit" in message:
                self.guardian.shut_down()
            elif "new_secret" in message:
                self._set_secret(bytes.fromhex(message["new_secret"]))
            else:
                self.guardian.set_node_id(message["id"])


@implementer(IReadDescriptor)
class _ReadDescriptor:
    """Reactor descriptor for a file descriptor."""

    def __init__(self, descriptor: int, ready: Callable[[], object]) -> None:
        self._descriptor = descriptor
        self._ready = ready

    def fileno(self) -> int:
        """Twisted: return the file descriptor."""
        return self._descriptor

    def doRead(self) -> None:
        """Twisted: call back when readable."""
        self._ready()

    def connectionLost(self, reason: Any) -> None:
        """Twisted: handle end of file, or the stop of the reactor."""
        self._ready()

    def logPrefix(self) -> str:
        """Twisted: return the log prefix."""
        return "guardian"


def watch_parent(parent: int, reactor: Any, on_exit: Callable[[], object]) -> None:
    """Call ``on_exit`` when the kernel reports the exit of the parent."""

    def is_gone() -> bool:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def look() -> None:
        if is_gone():
            reactor.removeReader(watched)
            on_exit()

    # The pid could have been reused, but not if it is the parent's before and after the call.
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
    """Run the guardian."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The parent handles these signals, and may take long.
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
        dialers.append(places)
        guardian = Guardian(reactor, message["links"], timers, places.endpoint_for, report=say)
        guardian.finished.addCallback(stop)
        # Read a pending id first, as the parent may have exited already.
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

    def set_secret(secret: bytes) -> None:
        for places in dialers:
            places.set_secrets(secret)

    dialers: list[Dialer] = []
    instructions = _StdinCommands(start, set_secret)
    os.set_blocking(0, False)
    standard_input = _ReadDescriptor(0, read)
    reactor.addReader(standard_input)
    reactor.run(installSignalHandlers=False)


if __name__ == "__main__":
    main()
