"""Publishing from outside a cluster, over TCP, with parcels."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random, SystemRandom
from secrets import token_hex
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, FyrehoseError, NotOrdered
from fyrehose_twisted.interfaces import IPublisher
from fyrehose_twisted.net.addresses import show_place, tcp_endpoint
from fyrehose_twisted.net.connection import LinkFactory, describe
from fyrehose_twisted.net.connector import EndpointFor
from fyrehose_twisted.parcels.client.node_warnings import NO_ANSWER, NodeTroubles, OnTrouble
from fyrehose_twisted.parcels.client.publications import Publication, check_event, check_publisher, only, refusal_name
from fyrehose_twisted.parcels.client.session import Session, SessionState
from fyrehose_twisted.parcels.config import check_text
from fyrehose_twisted.parcels.node.ordering.publisher_queue import Outbox
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT, MAX_NAME, NotPublished, Published, Refusal
from fyrehose_twisted.process.repeating import Repeating
from fyrehose_twisted.process.secret import check_secret

GREETING = 3.0
"""Seconds until a connection must be open, and again until the node must have said welcome."""
QUIET = 5.0
"""Seconds after which a node that owes an answer is asked whether it is there, and so long again to answer that."""
KEEPALIVE = 30.0
"""Seconds after which a node that owes nothing is asked, so that it does not take this publisher for dead."""
BACKOFF = (0.1, 2.0)
"""Seconds to wait when no node would do, the first time and at most."""
LOST_PLACE = 5
"""How often in a row events may be out of order before it is clear that the cluster has lost count of them."""
SAYS_NOTHING, IS_SILENT = "says nothing", "is silent"
"""Why connections are cut off on which no welcome comes, or nothing any more."""
_NO_ANSWERS = (SAYS_NOTHING, IS_SILENT, "timed out")

_LOST = (Refusal.FORGOTTEN, Refusal.OVERSIZE, Refusal.OTHER_BODY)
_FOR_GOOD = (Refusal.WRONG_CLUSTER, Refusal.WRONG_SECRET)


@implementer(IPublisher)
class ParcelsPublisher:
    """Publishes events in order, each once, at whichever of some nodes will have them.

        publisher = ParcelsPublisher([("127.0.0.1", 7878)])
        number = await publisher.publish(b"...")

    What is published in one turn of the reactor travels together. Whatever was not answered when a connection is lost
    is sent again over the next; the cluster knows which of it it has already.

    :param nodes: where nodes listen; hosts may be names.
    :param cluster: name of the cluster.
    :param name: what events say who published them; by default a random name. Two publishers that are there at once
        may not have the same.
    :param secret: that of the cluster.
    :param timeout: seconds until an event must have its number.
    :param queue_bytes: for how many bytes events may count that have none yet.
    :param endpoint_for: how nodes are dialled.
    :param on_trouble: told once for each change of a node that cannot be used while events wait.
    :raises ConfigurationError: if a name or the secret will not do, or there are no nodes.
    """

    log = Logger()

    def __init__(
        self,
        nodes: Sequence[Address],
        cluster: str = "default",
        *,
        name: str | None = None,
        secret: bytes | None = None,
        timeout: float = 30.0,
        queue_bytes: int = 8 * 2**20,
        endpoint_for: EndpointFor = tcp_endpoint,
        on_trouble: OnTrouble | None = None,
        rng: Random | None = None,
        reactor: Any = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        if not nodes:
            raise ConfigurationError("a publisher needs the address of a node at least")
        self.reactor = reactor
        self.nodes = tuple(nodes)
        self.cluster = check_text("cluster", cluster, MAX_NAME)
        self.name = check_publisher(name or f"publisher-{token_hex(8)}")
        self.secret = None if secret is None else check_secret(secret)
        self.timeout = timeout
        # An earlier life of the same name counted from 1 on as well, and what comes now is no repeat of that.
        self._outbox = Outbox(self.name, queue_bytes, int(reactor.seconds() * 1_000))
        self._endpoint_for = endpoint_for
        self._rng = SystemRandom() if rng is None else rng
        self._waiting: deque[tuple[float, Publication]] = deque()
        self._answered: set[Publication] = set()
        self._session: Session | None = None
        self._dialling: Deferred[Any] | None = None
        self._later: Any = None
        self._flush: Any = None
        self._turn = 0
        self._failures = 0
        self._out_of_order = 0
        self._refusals: list[Refusal] = []
        self._why = ("not-connected", "no node was reached yet")
        self._troubles = None if on_trouble is None else NodeTroubles(on_trouble)
        self._closed: Deferred[None] | None = None
        self._watch = Repeating("the watch of a publisher", self._look, reactor)

    # What an application does

    @property
    def pending(self) -> int:
        """Events that have no number yet."""
        return self._outbox.waiting

    @property
    def connected(self) -> bool:
        """Whether a node has said welcome, and is there as far as known."""
        return self._session is not None and self._session.state is SessionState.OPEN

    def publish(self, data: bytes) -> Deferred[int]:
        """Publish an event; return a Deferred of its number.

        It fails with :class:`~fyrehose_twisted.errors.NotOrdered`, which says whether the event may have a number all
        the same, :class:`~fyrehose_twisted.errors.MessageTooLarge`, or
        :class:`~fyrehose_twisted.errors.PublishQueueFull`.
        """
        return self._publish([data]).addCallback(only)

    def publish_many(self, messages: Sequence[bytes]) -> Deferred[list[int]]:
        """Publish events: return a Deferred of their numbers, in the same order. It fails as :meth:`publish` does, and
        then some of the first may have numbers."""
        return self._publish(list(messages)) if messages else succeed([])

    def close(self) -> Deferred[None]:
        """Hang up; what has no number yet fails. The Deferred fires when the connection is closed."""
        if self._closed is None:
            self._closed = Deferred()
            self._give_up("closed", "the publisher was closed")
            for call in (self._later, self._flush):
                if call is not None:
                    call.cancel()
            self._later = self._flush = None
            self._watch.stop()
            if self._dialling is not None:
                self._dialling.cancel()
            session, self._session = self._session, None
            if session is None:
                self._closed.callback(None)
            else:
                session.when_gone = self._gone
                session.leave()
                self._later = self.reactor.callLater(GREETING, session.cut_off, "does not go away")
        closed: Deferred[None] = Deferred()
        self._closed.addCallback(closed.callback)
        return closed

    def _gone(self) -> None:
        if self._later is not None and self._later.active():
            self._later.cancel()
        self._later = None
        if self._closed is not None and not self._closed.called:
            self._closed.callback(None)

    def _publish(self, events: Sequence[bytes]) -> Deferred[list[int]]:
        if self._closed is not None:
            return fail(NotOrdered("closed", "the publisher was closed", unknown=False))
        publication = Publication(len(events), self._answered.add)
        try:
            for event in events:
                check_event(event, MAX_EVENT)
            self._outbox.publish(events, publication)
        except FyrehoseError as error:
            return fail(error)
        self._waiting.append((self.reactor.seconds() + self.timeout, publication))
        if not self._watch.running:
            self._watch.start(1.0, now=False)
        self._flush_soon()
        return publication.numbered

    # Connections

    def session_opened(self, session: Session) -> None:
        """See :class:`~fyrehose_twisted.parcels.client.session.SessionOwner`."""
        self._failures = 0
        self._why = "timeout", f"{show_place(self._node)} did not answer in time"
        self._refusals.clear()
        self._outbox.send_again()
        self._send()

    def session_refused(self, session: Session, why: Refusal, text: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.client.session.SessionOwner`."""
        self._why = refusal_name(why), text
        self._refusals.append(why)
        if len(self._refusals) >= len(self.nodes) and set(self._refusals) <= set(_FOR_GOOD):
            self._refusals.clear()
            self._give_up(*self._why)
        self.log.warn("{place} refused this publisher: {text}", place=show_place(self._node), text=text)
        self._trouble(text)
        self._next(session)

    def session_answered(self, session: Session, answer: Published | NotPublished) -> None:
        """See :class:`~fyrehose_twisted.parcels.client.session.SessionOwner`."""
        if answer.publisher != self.name or answer.epoch != self._outbox.epoch:
            return
        if isinstance(answer, Published):
            self._out_of_order = 0
            if self._troubles is not None:
                self._troubles.works(self._node)
            for done in self._outbox.answered(answer.epoch, answer.first, answer.sequences):
                if done.token is not None:
                    done.token.answered(done.numbers)
            self._send()
            return
        self._why = refusal_name(answer.why), answer.text
        self._out_of_order += answer.why is Refusal.OUT_OF_ORDER
        if answer.why in _LOST or self._out_of_order > LOST_PLACE:
            self._out_of_order = 0
            self._give_up(*self._why)
        else:
            self._trouble(answer.text)
            session.leave()
            self._next(session)

    def session_ended(self, session: Session, reason: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.client.session.SessionOwner`."""
        self._why = "not-connected", f"{show_place(self._node)}: {reason}"
        self._trouble(reason)
        self._next(session)

    @property
    def _node(self) -> Address:
        return self.nodes[self._turn % len(self.nodes)]

    def _next(self, session: Session | None) -> None:
        """Try another node, if there is something to publish."""
        if session is not self._session:
            return
        self._session = None
        self._turn += 1
        self._failures += 1
        if self._outbox.waiting and self._closed is None and self._later is None:
            rounds = self._failures // len(self.nodes)
            first, most = BACKOFF
            wait = 0.0 if not rounds else min(most, first * 2 ** min(rounds - 1, 10)) * self._rng.uniform(0.5, 1.0)
            self._later = self.reactor.callLater(wait, self._dial)

    def _dial(self) -> None:
        self._later = None
        if self._session is not None or self._dialling is not None or self._closed is not None:
            return
        address = self._node
        try:
            endpoint = self._endpoint_for(self.reactor, address)
            dialling = endpoint.connect(LinkFactory(self._make_session))
        except Exception as error:
            self._failed_to_dial(error)
            return
        self._dialling = dialling.addTimeout(GREETING, self.reactor)
        self._dialling.addCallbacks(self._dialled, self._not_dialled)

    def _make_session(self) -> Session:
        self._session = Session(self, self.cluster, self.secret, self.reactor)
        return self._session

    def _dialled(self, session: Session) -> None:
        self._dialling = None

    def _not_dialled(self, failure: Failure) -> None:
        self._dialling = None
        self._failed_to_dial(failure.value)

    def _failed_to_dial(self, problem: BaseException | None) -> None:
        if self._closed is None:
            reason = describe(problem)
            self._why = "not-connected", f"{show_place(self._node)}: {reason}"
            self._trouble(reason)
            self._next(None)

    def _trouble(self, text: str) -> None:
        if self._troubles is not None and self._outbox.waiting:
            self._troubles.failed(self._node, NO_ANSWER if text in _NO_ANSWERS else text)

    # What waits

    def _flush_soon(self) -> None:
        if self._flush is None:
            self._flush = self.reactor.callLater(0, self._flushed)

    def _flushed(self) -> None:
        self._flush = None
        if self._session is None:
            if self._dialling is None and self._later is None:
                self._dial()
        else:
            self._send()

    def _send(self) -> None:
        session = self._session
        if session is not None and session.state is SessionState.OPEN:
            runs = self._outbox.take()
            if runs:
                session.publish(runs)

    def _look(self) -> None:
        """See what has taken too long."""
        now = self.reactor.seconds()
        why, text = self._why
        while self._waiting and (self._waiting[0][1] in self._answered or self._waiting[0][0] <= now):
            _, publication = self._waiting.popleft()
            if publication not in self._answered:
                gone = self._outbox.cancel(publication)
                late = f"no number within {self.timeout:g} s; {text}"
                publication.fail(NotOrdered(why, late, unknown=gone is None or gone.sent))
            self._answered.discard(publication)
        if not self._waiting:
            if self._outbox.waiting:
                self._outbox.give_up()  # Nobody waits for it any more; published now, it would be a surprise.
            # Who was told just now may have closed this publisher.
            if self._session is None:
                self._watch.stop()
        self._look_at_session(now)

    def _look_at_session(self, now: float) -> None:
        session = self._session
        if session is None:
            return
        if session.state is SessionState.GREETING:
            if now - session.opened_at >= GREETING:
                session.cut_off(SAYS_NOTHING)
        elif session.asked_at is not None:
            if now - session.asked_at >= QUIET:
                session.cut_off(IS_SILENT)
        elif now - session.heard_at >= (QUIET if self._outbox.waiting else KEEPALIVE):
            session.ask(now)

    def _give_up(self, why: str, text: str) -> None:
        for failed in self._outbox.give_up():
            if failed.token is not None:
                failed.token.fail(NotOrdered(why, text, unknown=failed.sent))
