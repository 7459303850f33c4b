"""The order, as one running node offers it to applications."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.errors import FyrehoseError, MessageTooLarge, NotOrdered, PublishQueueFull
from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.net.stream_driver import Links
from fyrehose_twisted.parcels.client.publications import Publication, check_event, check_publisher, only, publisher_of
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.status import ClusterState, show_founding
from fyrehose_twisted.parcels.service.observers import Listeners
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT, Event, Mode, Run, node_id

EVENT_HEAD = 8
"""Bytes that an event takes at most in a parcel, next to its own."""


@implementer(IOrderedEvents)
class OrderedEvents:
    """See :class:`~fyrehose_twisted.interfaces.IOrderedEvents`.

    :ivar node: the node, once it runs.
    :ivar links: its connections.
    """

    log = Logger()

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.node: ClusterNode | None = None
        self.links: Links | None = None
        self._listeners = Listeners()
        self._publications: set[Publication] = set()
        self._waiting = 0
        """Bytes of events that their publishers numbered; for the others the node knows."""
        self._usable = False
        self._error: Exception | None = None

    @property
    def last(self) -> int:
        """See :class:`~fyrehose_twisted.interfaces.IOrderedEvents`."""
        return 0 if self.node is None else self.node.sequence

    @property
    def oldest(self) -> int:
        """See :class:`~fyrehose_twisted.interfaces.IOrderedEvents`."""
        return 1 if self.node is None else self.node.oldest

    @property
    def founding(self) -> str:
        """See :class:`~fyrehose_twisted.interfaces.IOrderedEvents`."""
        return "" if self.node is None else show_founding(self.node.founding)

    def publish(self, data: bytes, publisher: str = "", key: str = "") -> Deferred[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.publish`.

        Events that have a key, or a publisher other than the node, carry its name with a digest behind it.
        """
        try:
            check_event(data, self.config.max_event)
            if not publisher and not key:
                return self._publish([data]).addCallback(only)
            name = publisher_of(publisher or self.config.name, key or token_hex(16))
        except FyrehoseError as error:
            return fail(error)
        return self._publish([data], Run(name, 1, 1, [data])).addCallback(only)

    def publish_many(self, events: Sequence[bytes]) -> Deferred[list[int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.publish_many`."""
        try:
            for event in events:
                check_event(event, self.config.max_event)
        except FyrehoseError as error:
            return fail(error)
        return self._publish(list(events)) if events else succeed([])

    def publish_run(self, run: Run) -> Deferred[list[int]]:
        """Publish events that their publisher numbered; the same run again gives the same numbers.

        It fails as :meth:`publish` does; :class:`~fyrehose_twisted.errors.MessageTooLarge` also if all of them together
        are longer than one event may be.
        """
        try:
            check_publisher(run.publisher)
            for event in run.events:
                check_event(event, self.config.max_event)
            size = sum(map(len, run.events)) + EVENT_HEAD * (len(run.events) - 1)
            if size > MAX_EVENT:
                raise MessageTooLarge(size, MAX_EVENT)
        except FyrehoseError as error:
            return fail(error)
        return self._publish(run.events, run) if run.events else succeed([])

    def events(self, first: int, last: int, limit: int) -> list[Event]:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.events`."""
        return [] if self.node is None else self.node.read(first, last, limit)

    def listen(self, listener: Any) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.listen`."""
        self._listeners.add(listener)

    def unlisten(self, listener: Any) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.unlisten`."""
        self._listeners.discard(listener)

    def state(self) -> ClusterState:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.state`."""
        config = self.config
        if self.node is None or self.links is None:
            mode, why = Mode.DSC.value, "it is starting"
            state = ClusterState(
                config.name, node_id(config.name), "", config.cluster, "", mode, why, None, 0, 0, 1, 0, (), (), {}
            )
        else:
            state = self.node.state(self.links.now())
            counted = {f"links_{name}": count for name, count in self.links.counters.items()}
            state = state._replace(counters={**state.counters, **counted})
        return state if self._error is None else state._replace(mode=Mode.PANIC.value, why=str(self._error))

    def reform(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.reform`."""
        if self.node is not None and self.links is not None:
            self.log.warn("forming cluster {cluster} anew with this node alone", cluster=self.config.cluster)
            self.node.reform(self.links.now())
            self.links.flush_soon()

    def _publish(self, events: Sequence[bytes], run: Run | None = None) -> Deferred[list[int]]:
        node, links = self.node, self.links
        if node is None or links is None or not self._usable or self._error is not None:
            return fail(NotOrdered("not-running", "the node does not run", unknown=False))
        publication = Publication(len(events), self._over)
        try:
            if run is None:
                node.publish(events, publication, links.now())
            else:
                publication.size = sum(map(len, events))
                if self._waiting and self._waiting + publication.size > self.config.pending_bytes:
                    raise PublishQueueFull(
                        f"{self._waiting:,} bytes of events wait to be ordered; wait for some of them"
                    )
                node.publish_as(run, publication, links.now())
        except FyrehoseError as error:
            return fail(error)
        self._publications.add(publication)
        self._waiting += publication.size
        links.flush_soon()
        return publication.numbered

    def _over(self, publication: Publication) -> None:
        if publication in self._publications:
            self._publications.discard(publication)
            self._waiting -= publication.size

    def _give_up(self, text: str) -> None:
        """Nothing more will be known of what was published here."""
        for publication in tuple(self._publications):
            publication.fail(NotOrdered("not-running", text, unknown=True))
