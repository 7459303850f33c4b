"""Publisher outside of the cluster, over TCP."""

from __future__ import annotations

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
from fyrehose_twisted.net.addresses import format_address, tcp_endpoint
from fyrehose_twisted.net.connection import ConnectionFactory, describe_failure
from fyrehose_twisted.net.connector import EndpointFactory
from fyrehose_twisted.parcels.client.node_warnings import NO_ANSWER, NodeWarnings, OnNodeWarning
from fyrehose_twisted.parcels.client.publications import (
    Publication,
    PublicationDeadlines,
    check_event,
    check_publisher,
    refusal_name,
    single_number,
)
from fyrehose_twisted.parcels.client.session import PublisherConnection, PublisherConnectionState
from fyrehose_twisted.parcels.config import check_text
from fyrehose_twisted.parcels.node.ordering.publisher_queue import PublisherQueue
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT, MAX_NAME, PublishAck, PublishNack, RefusalReason
from fyrehose_twisted.process.repeating import PeriodicCall
from fyrehose_twisted.process.secret import check_secret

HANDSHAKE_TIMEOUT = 3.0
"""Seconds within which a connection has to open, and again for the node's Welcome."""
REPLY_TIMEOUT = 5.0
"""Seconds after which a node with pending replies is probed, and again for its answer to the probe."""
KEEPALIVE_INTERVAL = 30.0
"""Seconds between keepalive probes of an idle connection, so that the node does not close it."""
BACKOFF = (0.1, 2.0)
"""Initial and maximum delay in seconds after all nodes failed."""
MAX_OUT_OF_ORDER = 5
"""Consecutive out-of-order refusals after which the publisher's session counts as lost."""
NO_WELCOME, NO_REPLY = "says nothing", "is silent"
"""Reasons for aborting a connection: no Welcome, or no reply."""
_TIMEOUT_REASONS = (NO_WELCOME, NO_REPLY, "timed out")

_FATAL_REFUSALS = (RefusalReason.FORGOTTEN, RefusalReason.OVERSIZE, RefusalReason.OTHER_BODY)
_PERMANENT_REFUSALS = (RefusalReason.WRONG_CLUSTER, RefusalReason.WRONG_SECRET)


@implementer(IPublisher)
class ParcelsPublisher:
    """Publishes events in order and exactly once, through any of several nodes.

        publisher = ParcelsPublisher([("127.0.0.1", 7878)])
        number = await publisher.publish(b"...")

    Events published in one turn of the reactor are sent together. After a lost connection, unacknowledged events are
    resent, and the cluster deduplicates them.

    :param nodes: addresses of nodes; hosts may be names.
    :param cluster: name of the cluster.
    :param name: publisher name; by default, a random one. Concurrent publishers need different names.
    :param secret: secret of the cluster.
    :param timeout: seconds within which an event has to get its sequence number.
    :param queue_bytes: maximum size in bytes of events without sequence numbers.
    :param endpoint_for: returns the client endpoint of a node.
    :param on_node_warning: called once per change of a node's problem while events are pending.
    :raises ConfigurationError: if a name or the secret is invalid, or ``nodes`` is empty.
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
        endpoint_for: EndpointFactory = tcp_endpoint,
        on_node_warning: OnNodeWarning | None = None,
        rng: Random | None = None,
        reactor: Any = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        if not nodes:
            raise ConfigurationError("give the address of at least one node")
        self.reactor = reactor
        self.nodes = tuple(nodes)
        self.cluster = check_text("cluster", cluster, MAX_NAME)
        self.name = check_publisher(name or f"publisher-{token_hex(8)}")
        self.secret = None if secret is None else check_secret(secret)
        self.timeout = timeout
        # Earlier runs of this publisher numbered from 1 as well. The epoch distinguishes their events from new ones.
        self._queue = PublisherQueue(self.name, queue_bytes, int(reactor.seconds() * 1_000))
        self._endpoint_for = endpoint_for
        self._rng = SystemRandom() if rng is None else rng
        self._deadlines = PublicationDeadlines()
        self._session: PublisherConnection | None = None
        self._dialling: Deferred[Any] | None = None
        self._retry_call: Any = None
        self._flush_call: Any = None
        self._answering = False
        self._node_index = 0
        self._failures = 0
        self._out_of_order = 0
        self._refusals: list[RefusalReason] = []
        self._last_failure = ("not-connected", "no node was reached yet")
        self._node_warnings = None if on_node_warning is None else NodeWarnings(on_node_warning)
        self._closed: Deferred[None] | None = None
        self._timeout_check = PeriodicCall("the watch of a publisher", self._check_timeouts, reactor)

    # API

    @property
    def pending(self) -> int:
        """Number of events without sequence numbers."""
        return self._queue.pending_events

    @property
    def connected(self) -> bool:
        """Whether the publisher is connected to a node."""
        return self._session is not None and self._session.state is PublisherConnectionState.OPEN

    def publish(self, data: bytes) -> Deferred[int]:
        """Publish an event; return a Deferred of its sequence number.

        It fails with :class:`~fyrehose_twisted.errors.NotOrdered`, which says whether the event may still have been
        ordered, :class:`~fyrehose_twisted.errors.MessageTooLarge`, or
        :class:`~fyrehose_twisted.errors.PublishQueueFull`.
        """
        return self._publish([data]).addCallback(single_number)

    def publish_many(self, messages: Sequence[bytes]) -> Deferred[list[int]]:
        """Publish events; return a Deferred of their sequence numbers, in the same order.

        It fails as :meth:`publish` does. Leading events may have been ordered nevertheless.
        """
        return self._publish(list(messages)) if messages else succeed([])

    def close(self) -> Deferred[None]:
        """Fail pending events and disconnect. The Deferred fires when the connection is closed."""
        if self._closed is None:
            self._closed = Deferred()
            self._fail_pending("closed", "the publisher was closed")
            for call in (self._retry_call, self._flush_call):
                if call is not None:
                    call.cancel()
            self._retry_call = self._flush_call = None
            self._timeout_check.stop()
            if self._dialling is not None:
                self._dialling.cancel()
            session, self._session = self._session, None
            if session is None:
                self._closed.callback(None)
            else:
                session.on_closed = self._session_closed
                session.finish()
                self._retry_call = self.reactor.callLater(HANDSHAKE_TIMEOUT, session.abort, "does not go away")
        closed: Deferred[None] = Deferred()
        self._closed.addCallback(closed.callback)
        return closed

    def _session_closed(self) -> None:
        if self._retry_call is not None and self._retry_call.active():
            self._retry_call.cancel()
        self._retry_call = None
        if self._closed is not None and not self._closed.called:
            self._closed.callback(None)

    def _publish(self, events: Sequence[bytes]) -> Deferred[list[int]]:
        if self._closed is not None:
            return fail(NotOrdered("closed", "the publisher was closed", unknown=False))
        publication = Publication(len(events), self._deadlines.publication_done)
        try:
            for event in events:
                check_event(event, MAX_EVENT)
            self._queue.publish(events, publication)
        except FyrehoseError as error:
            return fail(error)
        self._deadlines.add(publication, self.reactor.seconds() + self.timeout)
        if not self._timeout_check.running:
            self._timeout_check.start(1.0, now=False)
        self._flush_soon()
        return publication.numbered

    # Connections

    def session_opened(self, session: PublisherConnection) -> None:
        """See :class:`~fyrehose_twisted.parcels.client.session.PublisherConnectionOwner`."""
        self._failures = 0
        self._last_failure = "timeout", f"{format_address(self._node)} did not answer in time"
        self._refusals.clear()
        self._queue.resend_all()
        self._send()

    def session_refused(self, session: PublisherConnection, reason: RefusalReason, text: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.client.session.PublisherConnectionOwner`."""
        self._last_failure = refusal_name(reason), text
        self._refusals.append(reason)
        if len(self._refusals) >= len(self.nodes) and set(self._refusals) <= set(_PERMANENT_REFUSALS):
            self._refusals.clear()
            self._fail_pending(*self._last_failure)
        self.log.warn("{place} refused this publisher: {text}", place=format_address(self._node), text=text)
        self._warn_of_node(text)
        self._try_next_node(session)

    def session_answered(self, session: PublisherConnection, answer: PublishAck | PublishNack) -> None:
        """See :class:`~fyrehose_twisted.parcels.client.session.PublisherConnectionOwner`."""
        if answer.publisher != self.name or answer.epoch != self._queue.epoch:
            return
        if isinstance(answer, PublishAck):
            self._out_of_order = 0
            if self._node_warnings is not None:
                self._node_warnings.recovered(self._node)
            # What is published in response leaves below, without a turn of the reactor.
            self._answering = True
            try:
                for done in self._queue.acknowledge(answer.epoch, answer.first, answer.sequences):
                    if done.token is not None:
                        done.token.answered(done.numbers)
            finally:
                self._answering = False
            self._send()
            if self._session is None and self._queue.pending_events:
                self._flush_soon()  # A late answer of a connection that has ended.
            return
        self._last_failure = refusal_name(answer.why), answer.text
        self._out_of_order += answer.why is RefusalReason.OUT_OF_ORDER
        if answer.why in _FATAL_REFUSALS or self._out_of_order > MAX_OUT_OF_ORDER:
            self._out_of_order = 0
            self._fail_pending(*self._last_failure)
        else:
            self._warn_of_node(answer.text)
            session.finish()
            self._try_next_node(session)

    def session_ended(self, session: PublisherConnection, reason: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.client.session.PublisherConnectionOwner`."""
        self._last_failure = "not-connected", f"{format_address(self._node)}: {reason}"
        self._warn_of_node(reason)
        self._try_next_node(session)

    @property
    def _node(self) -> Address:
        return self.nodes[self._node_index % len(self.nodes)]

    def _try_next_node(self, session: PublisherConnection | None) -> None:
        """Try the next node if events are pending."""
        if session is not self._session:
            return
        self._session = None
        self._node_index += 1
        self._failures += 1
        if self._queue.pending_events and self._closed is None and self._retry_call is None:
            rounds = self._failures // len(self.nodes)
            first, most = BACKOFF
            wait = 0.0 if not rounds else min(most, first * 2 ** min(rounds - 1, 10)) * self._rng.uniform(0.5, 1.0)
            self._retry_call = self.reactor.callLater(wait, self._dial)

    def _dial(self) -> None:
        self._retry_call = None
        if self._session is not None or self._dialling is not None or self._closed is not None:
            return
        address = self._node
        try:
            endpoint = self._endpoint_for(self.reactor, address)
            dialling = endpoint.connect(ConnectionFactory(self._make_session))
        except Exception as error:
            self._record_dial_failure(error)
            return
        self._dialling = dialling.addTimeout(HANDSHAKE_TIMEOUT, self.reactor)
        self._dialling.addCallbacks(self._dialled, self._dial_failed)

    def _make_session(self) -> PublisherConnection:
        self._session = PublisherConnection(self, self.cluster, self.secret, self.reactor)
        return self._session

    def _dialled(self, session: PublisherConnection) -> None:
        self._dialling = None

    def _dial_failed(self, failure: Failure) -> None:
        self._dialling = None
        self._record_dial_failure(failure.value)

    def _record_dial_failure(self, problem: BaseException | None) -> None:
        if self._closed is None:
            reason = describe_failure(problem)
            self._last_failure = "not-connected", f"{format_address(self._node)}: {reason}"
            self._warn_of_node(reason)
            self._try_next_node(None)

    def _warn_of_node(self, text: str) -> None:
        if self._node_warnings is not None and self._queue.pending_events:
            self._node_warnings.failed(self._node, NO_ANSWER if text in _TIMEOUT_REASONS else text)

    # Pending events

    def _flush_soon(self) -> None:
        if self._flush_call is None and not self._answering:
            self._flush_call = self.reactor.callLater(0, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_call = None
        if self._session is None:
            if self._dialling is None and self._retry_call is None:
                self._dial()
        else:
            self._send()

    def _send(self) -> None:
        session = self._session
        if session is not None and session.state is PublisherConnectionState.OPEN:
            runs = self._queue.take_runs()
            if runs:
                session.publish(runs)

    def _check_timeouts(self) -> None:
        """Fail expired events and check the connection."""
        now = self.reactor.seconds()
        why, text = self._last_failure
        for publication in self._deadlines.take_expired(now):
            gone = self._queue.cancel(publication)
            late = f"no number within {self.timeout:g} s; {text}"
            publication.fail(NotOrdered(why, late, unknown=gone is None or gone.sent))
        if not self._deadlines:
            if self._queue.pending_events:
                self._queue.abandon_all()  # Their Deferreds have failed, so do not publish them any more.
            # A callback may have closed this publisher just now.
            if self._session is None:
                self._timeout_check.stop()
        self._check_session(now)

    def _check_session(self, now: float) -> None:
        session = self._session
        if session is None:
            return
        if session.state is PublisherConnectionState.HANDSHAKE:
            if now - session.opened_at >= HANDSHAKE_TIMEOUT:
                session.abort(NO_WELCOME)
        elif session.probed_at is not None:
            if now - session.probed_at >= REPLY_TIMEOUT:
                session.abort(NO_REPLY)
        elif now - session.heard_at >= (REPLY_TIMEOUT if self._queue.pending_events else KEEPALIVE_INTERVAL):
            session.probe(now)

    def _fail_pending(self, reason: str, text: str) -> None:
        for failed in self._queue.abandon_all():
            if failed.token is not None:
                failed.token.fail(NotOrdered(reason, text, unknown=failed.sent))
