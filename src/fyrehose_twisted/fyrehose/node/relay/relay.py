"""Relay on one socket: both of its sides as one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from zope.interface import classImplements

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.node.base import earliest
from fyrehose_twisted.fyrehose.node.relay.downstream import RelayDownstream
from fyrehose_twisted.fyrehose.node.relay.other_side import OtherSideReady
from fyrehose_twisted.fyrehose.node.relay.upstream import RelayUpstream
from fyrehose_twisted.fyrehose.wire.extension import ExtensionKind
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, WITH_MAC, PacketType
from fyrehose_twisted.fyrehose.wire.run_codec import split_types
from fyrehose_twisted.interfaces import IDatagramNode, IForwardPolicy, Outputs

_FOR_CLIENTS = frozenset(
    kind | mac
    for kind in (
        PacketType.DELIVER,
        PacketType.FETCHED,
        PacketType.FORWARD,
        PacketType.FORWARD6,
        PacketType.KEEPALIVE_ACK,
    )
    for mac in (0, WITH_MAC)
)
_EXTENSIONS_FOR_CLIENTS = frozenset(
    (ExtensionKind.STATUS, ExtensionKind.ASKED, ExtensionKind.LEADER, ExtensionKind.LEADER6, ExtensionKind.DEPTH)
)


class Relay:
    """Node of a relay with one socket for its parent and its clients. The type of a packet tells for whom it is.

    :param parents: see :class:`~fyrehose_twisted.fyrehose.node.relay.upstream.RelayUpstream`.
    :param answer_repairs: see :class:`~fyrehose_twisted.fyrehose.node.relay.downstream.RelayDownstream`.
    :ivar upstream: the relay as a client of its parent.
    :ivar downstream: the relay as the backbone of its clients.
    """

    def __init__(
        self,
        parents: Address | Sequence[Address],
        config: BackboneConfig,
        client_config: ClientConfig,
        policy: IForwardPolicy,
        rng: Random,
        now: float,
        *,
        answer_repairs: bool = False,
        own_address: Callable[[Address], Address] = lambda peer: ANY_ADDRESS,
        is_own: Callable[[Address], bool] = lambda address: False,
    ) -> None:
        self.downstream = RelayDownstream(
            config, policy, answer_repairs=answer_repairs, own_address=own_address, is_own=is_own, now=now
        )
        self.upstream = RelayUpstream(parents, client_config, self.downstream, rng, now)

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`."""
        runs: list[DatagramRun] = []
        for_client = False
        for whole in batch.runs:
            for run in split_types(batch.buffer, whole):
                if runs and for_client is not _is_for_client(batch, run):
                    self._receive(batch, runs, now, for_client=for_client)
                    runs = []
                for_client = _is_for_client(batch, run)
                runs.append(run)
        self._receive(batch, runs, now, for_client=for_client)

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        self.upstream.tick(now)
        self.downstream.tick(now)

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        return earliest(self.upstream.next_deadline(), self.downstream.next_deadline())

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is always ``None``."""
        _, effects, events = self.upstream.drain()
        _, more_effects, more_events = self.downstream.drain()
        events = [event for event in (*events, *more_events) if not isinstance(event, OtherSideReady)]
        return Outputs(None, [*effects, *more_effects], events)

    def _receive(self, batch: Batch, runs: list[DatagramRun], now: float, *, for_client: bool) -> None:
        if runs:
            side = self.upstream if for_client else self.downstream
            side.receive_batch(Batch(batch.buffer, runs), now)


classImplements(Relay, IDatagramNode)


def _is_for_client(batch: Batch, run: DatagramRun) -> bool:
    kind = batch.buffer[run.start] if run.size else 0
    if kind == PacketType.EXTENSION and run.size > 1:
        return batch.buffer[run.start + 1] in _EXTENSIONS_FOR_CLIENTS
    return kind in _FOR_CLIENTS
