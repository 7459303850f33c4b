"""Application interface of a running node."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.consensus.messages import Membership
from fyrehose_twisted.errors import (
    FyrehoseError,
    MessageTooLarge,
    NotLeader,
    NotOrdered,
    PublishQueueFull,
    StateUnavailable,
)
from fyrehose_twisted.interfaces import IClusterOperator, IEventListener, IOrderedEvents, IStateHolder
from fyrehose_twisted.net.node_service import Observers
from fyrehose_twisted.net.stream_driver import StreamDriver
from fyrehose_twisted.parcels.backup import BackupHead
from fyrehose_twisted.parcels.client.publications import (
    Publication,
    check_event,
    check_publisher,
    keyed_publisher,
    single_number,
)
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.status import NodeStatus, format_cluster_id
from fyrehose_twisted.parcels.service.read_marks import ReadMark, ReadMarks
from fyrehose_twisted.parcels.service.state_keeper import StateKeeper
from fyrehose_twisted.parcels.state_snapshot import StateSnapshot
from fyrehose_twisted.parcels.wire.messages import MAX_EVENT, Event, Mode, PublisherRun, node_id

EVENT_OVERHEAD = 8
"""Maximum overhead of an event in a parcel, in bytes."""


@implementer(IOrderedEvents, IStateHolder, IClusterOperator)
class OrderedEventsMixin:
    """Implementation of :class:`~fyrehose_twisted.interfaces.IOrderedEvents`.

    It also implements :class:`~fyrehose_twisted.interfaces.IStateHolder` and
    :class:`~fyrehose_twisted.interfaces.IClusterOperator`.

    :ivar node: the node, once it is running.
    :ivar links: driver of its connections; ``None`` before the start.
    """

    log = Logger()

    def __init__(self, config: NodeConfig, keeper: StateKeeper | None = None) -> None:
        self.config = config
        self._state_keeper = keeper
        self.node: ClusterNode | None = None
        self.links: StreamDriver | None = None
        self._observers = Observers(IEventListener)
        self._publications: set[Publication] = set()
        self._read_marks = ReadMarks(self._put_mark)
        self._pending_bytes = 0
        """Size in bytes of pending events numbered by their publishers. The node accounts for all others."""
        self._accepting = False
        self._error: Exception | None = None

    @property
    def driver(self) -> StreamDriver | None:
        """Deprecated name of :attr:`links`."""
        warnings.warn(f"{type(self).__name__}.driver is called links now", DeprecationWarning, stacklevel=2)
        return self.links

    @property
    def last(self) -> int:
        """See :class:`~fyrehose_twisted.interfaces.IOrderedEvents`."""
        return 0 if self.node is None else self.node.sequence

    @property
    def oldest(self) -> int:
        """See :class:`~fyrehose_twisted.interfaces.IOrderedEvents`."""
        return 1 if self.node is None else self.node.oldest

    @property
    def cluster_id(self) -> str:
        """See :class:`~fyrehose_twisted.interfaces.IOrderedEvents`."""
        return "" if self.node is None else format_cluster_id(self.node.cluster_id)

    def publish(self, data: bytes, publisher: str = "", key: str = "", *, expect: int | None = None) -> Deferred[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.publish`.

        Events that have a key, a condition, or a publisher other than the node, carry its name with a digest behind it.
        """
        try:
            check_event(data, self.config.max_event)
            if not publisher and not key and expect is None:
                return self._publish([data]).addCallback(single_number)
            name = keyed_publisher(publisher or self.config.name, key or token_hex(16))
        except FyrehoseError as error:
            return fail(error)
        return self._publish([data], PublisherRun(name, 1, 1, [data], expect)).addCallback(single_number)

    def publish_many(self, events: Sequence[bytes]) -> Deferred[list[int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.publish_many`."""
        try:
            for event in events:
                check_event(event, self.config.max_event)
        except FyrehoseError as error:
            return fail(error)
        return self._publish(list(events)) if events else succeed([])

    def publish_run(self, run: PublisherRun) -> Deferred[list[int]]:
        """Publish events that their publisher numbered. Repeating a run returns the same sequence numbers.

        It fails as :meth:`publish` does; :class:`~fyrehose_twisted.errors.MessageTooLarge` also if all of them together
        are longer than one event may be.
        """
        try:
            check_publisher(run.publisher)
            for event in run.events:
                check_event(event, self.config.max_event)
            size = sum(map(len, run.events)) + EVENT_OVERHEAD * (len(run.events) - 1)
            if size > MAX_EVENT:
                raise MessageTooLarge(size, MAX_EVENT)
        except FyrehoseError as error:
            return fail(error)
        return self._publish(run.events, run) if run.events else succeed([])

    def synchronize(self) -> Deferred[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.synchronize`."""
        return self._read_marks.wait()

    def events(self, first: int, last: int, limit: int) -> list[Event]:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.events`."""
        return [] if self.node is None else self.node.read(first, last, limit)

    def listen(self, listener: Any) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.listen`."""
        self._observers.add(listener)

    def unlisten(self, listener: Any) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.unlisten`."""
        self._observers.discard(listener)

    def state(self) -> NodeStatus:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.state`."""
        config = self.config
        if self.node is None or self.links is None:
            mode, why = Mode.DSC.value, "it is starting"
            state = NodeStatus(
                config.name, node_id(config.name), "", config.cluster, "", mode, why, None, 0, 0, 1, 0, (), (), {}
            )
        else:
            state = self.node.state(self.links.now())
            counted = {f"links_{name}": count for name, count in self.links.counters.items()}
            state = state._replace(counters={**state.counters, **counted})
        return state if self._error is None else state._replace(mode=Mode.PANIC.value, why=str(self._error))

    @property
    def holds_state(self) -> bool:
        """See :class:`~fyrehose_twisted.interfaces.IStateHolder`."""
        return self._state_keeper is not None

    def state_snapshot(self) -> StateSnapshot:
        """See :meth:`~fyrehose_twisted.interfaces.IStateHolder.state_snapshot`."""
        if self._state_keeper is None or self.node is None:
            raise StateUnavailable("not-running", "the node holds no state, or is not running yet")
        return self._state_keeper.take(self.node)

    def force_new_cluster(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IOrderedEvents.force_new_cluster`."""
        if self.node is not None and self.links is not None:
            self.log.warn("forcing a new cluster {cluster} with this node alone", cluster=self.config.cluster)
            self.node.reform(self.links.now())
            self.links.flush_soon()

    def remove(self, name: str) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IClusterOperator.remove`."""
        if self.node is None or self.links is None:
            raise NotLeader(None)
        self.node.remove(name, self.links.now())
        self.log.warn("{name} is removed by the operator", name=name)
        self.links.flush_soon()

    def backup_head(self) -> BackupHead:
        """See :meth:`~fyrehose_twisted.interfaces.IClusterOperator.backup_head`."""
        node = self.node
        if node is None or not node.cluster_id:
            raise StateUnavailable("no-cluster", "the node is in no cluster")
        numbering = node.components.delivery.numbering
        if node.sequence < numbering.sequence:
            raise StateUnavailable("behind", f"the node has events up to {node.sequence:,} so far")
        keeper = self._state_keeper
        state = None if keeper is None or node.components.application_state.failure else keeper.take(node)
        return BackupHead(
            self.config.cluster,
            format_cluster_id(node.cluster_id),
            numbering.dump(Membership(())),
            node.oldest,
            node.sequence,
            0 if state is None else state.sequence,
            None if state is None else state.data,
        )

    def transfer_leadership(self, name: str | None = None) -> str:
        """See :meth:`~fyrehose_twisted.interfaces.IClusterOperator.transfer_leadership`."""
        if self.node is None or self.links is None:
            raise NotLeader(None)
        successor = self.node.transfer_leadership(name, self.links.now())
        self.log.info("{name} is ordered to take over the leadership", name=successor)
        self.links.flush_soon()
        return successor

    def _publish(self, events: Sequence[bytes], run: PublisherRun | None = None) -> Deferred[list[int]]:
        node, links = self.node, self.links
        if node is None or links is None or not self._accepting or self._error is not None:
            return fail(NotOrdered("not-running", "the node is not running", unknown=False))
        publication = Publication(len(events), self._publication_done)
        try:
            if run is None:
                node.publish(events, publication, links.now())
            else:
                publication.size = sum(map(len, events))
                if self._pending_bytes and self._pending_bytes + publication.size > self.config.pending_bytes:
                    raise PublishQueueFull(
                        f"{self._pending_bytes:,} bytes of events are pending; wait for some of them"
                    )
                node.publish_as(run, publication, links.now())
        except FyrehoseError as error:
            return fail(error)
        self._publications.add(publication)
        self._pending_bytes += publication.size
        links.flush_soon()
        return publication.numbered

    def _put_mark(self, mark: ReadMark) -> None:
        node, links = self.node, self.links
        if node is None or links is None or not self._accepting or self._error is not None:
            raise NotOrdered("not-running", "the node is not running", unknown=False)
        node.mark(mark, links.now())
        links.flush_soon()

    def _publication_done(self, publication: Publication) -> None:
        if publication in self._publications:
            self._publications.discard(publication)
            self._pending_bytes -= publication.size

    def _fail_publications(self, text: str) -> None:
        """Fail all pending publications, whose results will not be known."""
        for publication in tuple(self._publications):
            publication.fail(NotOrdered("not-running", text, unknown=True))
        self._read_marks.fail(NotOrdered("not-running", text, unknown=False))
