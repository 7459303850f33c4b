"""State of an application that a cluster keeps the same on all nodes."""

from __future__ import annotations

from zope.interface import implementer

from fyrehose_twisted.interfaces import IReplicatedState
from fyrehose_twisted.parcels.wire.messages import Event


@implementer(IReplicatedState)
class ReplicatedState:
    """State that results from the ordered events; subclass it.

        class Counter(ReplicatedState):
            count = 0

            def apply(self, event):
                self.count += int(event.data)

            def snapshot(self):
                return b"%d" % self.count

            def restore(self, data):
                self.count = int(data)

    A node holds such an object with ``--state counter.Counter``, or :attr:`ParcelsConfig.state
    <fyrehose_twisted.parcels.service.config.ParcelsConfig>`; :meth:`ParcelsClient.replicate
    <fyrehose_twisted.parcels.client.http_client.ParcelsClient.replicate>` keeps one elsewhere. All of them are equal
    after the same event, if what they do depends on nothing but the events: not on the clock, random numbers, or the
    order of a set.
    """

    def apply(self, event: Event) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IReplicatedState.apply`."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        """See :meth:`~fyrehose_twisted.interfaces.IReplicatedState.snapshot`."""
        raise NotImplementedError

    def restore(self, data: bytes) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IReplicatedState.restore`."""
        raise NotImplementedError
