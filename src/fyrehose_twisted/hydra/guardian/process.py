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
from fyrehose_twisted.net.connection import Link
from fyrehose_twisted.net.connector import Dials, EndpointFor

REDIAL = 0.5, 2.0
"""Seconds until a link is opened anew: first, and at most; at the scale of the timers."""
LAST_TRY = 5.0
"""Seconds for which it tries to reach somebody when the parent is gone and no link was bound."""
FLUSH = 2.0
"""Seconds that the goodbye may take to leave."""
DIAL = 10.0
"""Seconds until a link must be open."""


class Post(HydraProtocol):
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
        self._guardian.opened(self)

    def hydra_received(self, messages: Sequence[Message]) -> None:
        """See :class:`~fyrehose_twisted.hydra.protocol.HydraProtocol`."""
        self._guardian.received(self, messages)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection has ended."""
        super().connectionLost(reason)
        self._guardian.ended(self)


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
        endpoint_for: EndpointFor,
        *,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.id: int | None = None
        self.over: Deferred[None] = Deferred()
        self._reactor = reactor
        self._timers = timers
        self._say = say
        self._dials = Dials(reactor, endpoint_for, self._not_opened, DIAL)
        self._waits: dict[Address, float] = dict.fromkeys([(link, 0) for link in links], 0.0)
        """By link: seconds before it was dialled the last time."""
        self._posts: dict[Address, Post] = {}
        self._calls: dict[Address, Any] = {}
        """By link: when to dial it, or to look after it."""
        self._number = 0
        self._gone = False
        self._told = 0

    # What it is told

    def use(self, number: int | None) -> None:
        """The node has this id now."""
        if number == self.id or self._gone:
            return
        self.id = number
        for address in self._waits:
            post = self._posts.pop(address, None)
            if post is not None:
                post.hang_up()
            self._cancel(address)
            if number is not None:
                self._waits[address] = 0.0
                self._dial(address)

    def parent_gone(self) -> None:
        """The kernel says that the parent has ended."""
        if self._gone:
            return
        self._gone = True
        if self.id is None or not self._waits:
            self._end()
            return
        bound = [post for post in self._posts.values() if post.bound]
        self._say(f"node {self.id} has ended without a goodbye; links that are ready to say it: {len(bound)}")
        for post in bound:
            self._drop(post)
        self._reactor.callLater(FLUSH if bound else LAST_TRY, self._end)

    def quit(self) -> None:
        """The node said goodbye itself."""
        self._gone = True
        for post in tuple(self._posts.values()):  # One that ends at once is taken out.
            post.hang_up()
        self._end()

    # Links

    def opened(self, post: Post) -> None:
        """A link is open."""
        if post.id is None or post.id != self.id or post.address in self._posts:
            post.hang_up()
            return
        self._posts[post.address] = post
        post.since = post.knocked_at = self._reactor.seconds()
        post.send([Knock(post.id, GUARDIAN_TAG)])
        self._look_later(post)

    def received(self, post: Post, messages: Sequence[Message]) -> None:
        """Something came; nearly all of it is of no interest."""
        post.since = self._reactor.seconds()
        if post.bound or post.id is None or not any(isinstance(m, Hello) and m.ind == post.id for m in messages):
            return
        post.bound = True
        self._waits[post.address] = 0.0
        if self._gone:
            self._drop(post)
            self._reactor.callLater(FLUSH, self._end)
        else:
            links = sum(one.bound for one in self._posts.values())
            self._say(f"stands by for node {post.id}, {links} of {len(self._waits)} links are ready")

    def ended(self, post: Post) -> None:
        """A link has ended."""
        if self._posts.get(post.address) is post:
            del self._posts[post.address]
            self._cancel(post.address)
            if self._gone and self._told:
                if not any(other.bound for other in self._posts.values()):
                    self._end()
            else:
                self._dial_later(post.address)

    def _drop(self, post: Post) -> None:
        assert self._gone, "a parent that lives says goodbye itself"
        assert post.id is not None, "it is bound"
        self._told += 1
        post.send([Drop(post.id, "guardian")])
        post.hang_up()

    def _dial(self, address: Address) -> None:
        self._calls.pop(address, None)

        def make() -> Link:
            post = Post(self, address)
            self._number += 1
            post.peer, post.source = Peer(address, self._number, True), address[0]
            return post

        self._dials.dial(address, make)

    def _not_opened(self, address: Address, reason: str) -> None:
        if address not in self._posts:
            self._dial_later(address)

    def _dial_later(self, address: Address) -> None:
        if self.id is None or address in self._calls or self.over.called:
            return
        first, most = REDIAL
        self._waits[address] = wait = min(max(self._waits[address] * 2, first), most)
        self._calls[address] = self._reactor.callLater(wait * self._timers.scale, self._dial, address)

    def _look_later(self, post: Post) -> None:
        self._calls[post.address] = self._reactor.callLater(self._timers.max_ping / 3, self._look, post)

    def _look(self, post: Post) -> None:
        del self._calls[post.address]
        now, most = self._reactor.seconds(), self._timers.max_ping
        if now - post.since > 1.5 * most or (not post.bound and now - post.knocked_at > most / 2):
            # Whoever is there may not have known the node yet.
            post.cut_off("silent")
            return
        post.send([Keepalive()])
        self._look_later(post)

    def _cancel(self, address: Address) -> None:
        call = self._calls.pop(address, None)
        if call is not None:
            call.cancel()

    def _end(self) -> None:
        if self.over.called:
            return
        for address in tuple(self._calls):
            self._cancel(address)
        self._dials.cancel()
        self.over.callback(None)


class _Instructions:
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
                self.guardian.quit()
            else:
                self.guardian.use(message["id"])


@implementer(IReadDescriptor)
class _Watched:
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


def watch(parent: int, reactor: Any, gone: Callable[[], object]) -> None:
    """Call ``gone`` when the kernel says that the parent has ended, and never before."""

    def is_gone() -> bool:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def look() -> None:
        if is_gone():
            reactor.removeReader(watched)
            gone()

    # The number could be another process's by now; but not if it was the parent's before and is afterwards.
    descriptor = -1
    if os.getppid() == parent:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(parent)
    if os.getppid() != parent:
        gone()
        return
    watched = _Watched(descriptor, look)
    reactor.addReader(watched)


def main() -> None:
    """Run as a process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # They are the parent's, who may take its time over them.
    from twisted.internet import reactor as plain_reactor

    from fyrehose_twisted.hydra.transports.dialer import Places
    from fyrehose_twisted.net.boottime import SteadyClock

    reactor: Any = SteadyClock(plain_reactor)

    def stop(result: object) -> None:
        with suppress(Exception):
            reactor.stop()

    def say(text: str) -> None:
        with suppress(Exception):
            print(f"hydra guardian: {text}", file=sys.stderr, flush=True)

    def start(message: dict[str, Any]) -> Guardian:
        secret = message["secret"]
        timers = Timers(message["scale"])
        places = Places(reactor, message["links"], None if secret is None else bytes.fromhex(secret), timers)
        guardian = Guardian(reactor, message["links"], timers, places.endpoint_for, say=say)
        guardian.over.addCallback(stop)
        # Not before the id was read, which may be there already: the parent may have ended meanwhile.
        reactor.callLater(0, watch, message["parent"], reactor, guardian.parent_gone)
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

    instructions = _Instructions(start)
    os.set_blocking(0, False)
    standard_input = _Watched(0, read)
    reactor.addReader(standard_input)
    reactor.run(installSignalHandlers=False)


if __name__ == "__main__":
    main()
