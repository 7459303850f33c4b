"""What a relay does with the messages of its own clients, and with those of the stream."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address, Burst
from fyrehose_twisted.fyrehose.events import BackboneCounters
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable
from fyrehose_twisted.fyrehose.node.backbone.delivery import Delivery
from fyrehose_twisted.fyrehose.node.backbone.repair_dispatch import RepairDispatcher
from fyrehose_twisted.fyrehose.node.backbone.sequencer import Sequencer
from fyrehose_twisted.fyrehose.node.base import NodeOutput
from fyrehose_twisted.fyrehose.node.relay.push_returns import PushReturns
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, decode, encode_push
from fyrehose_twisted.fyrehose.wire.packets import AGAIN, CONFIRM, Push
from fyrehose_twisted.fyrehose.wire.run_codec import relay_pushes

MAX_DEPTH = 16
"""Maximum number of relays on the way of a PUSH to the backbone, and of a message from there."""


class RelayDelivery(Delivery):
    """Output of a relay to its clients. PUSHes are passed to the parent instead of being numbered.

    :param push: passes PUSHes to the parent. Returns whether there is one.
    :param drop: counts PUSHes that are dropped: reason, source, detail, time and how many.
    :ivar returns: publishers that wait for the DELIVERs of their messages.
    """

    def __init__(
        self,
        sequencer: Sequencer,
        repair_dispatcher: RepairDispatcher,
        client_table: ClientTable,
        counters: BackboneCounters,
        output: NodeOutput,
        *,
        push: Callable[[Burst, bool], bool],
        drop: Callable[[str, Address, str, float, int], None],
    ) -> None:
        super().__init__(sequencer, repair_dispatcher, client_table, counters, output)
        self.returns = PushReturns()
        self.pushed = 0
        self._push = push
        self._drop = drop

    def publish(self, push: Push, peer: Address, now: float) -> None:
        """Pass a PUSH on."""
        if push.hops >= MAX_DEPTH:
            self._drop_looping(peer, 1, now)
            return
        datagram = encode_push(push.data, again=push.again, hops=push.hops + 1)
        if push.again or (push.confirm and not self._client_table.subscribes(peer)):
            self.returns.add(push.data, peer)
        self._pass_on(Burst(datagram, len(datagram)), 1, peer, now, again=push.again)

    def publish_run(self, batch: Batch, run: DatagramRun, count: int, now: float) -> None:
        """Pass the first ``count`` PUSHes of a run on."""
        relayed = relay_pushes(batch, run, count)
        if relayed is None:
            for position in range(run.start, run.start + count * run.size, run.size):
                push = decode(batch.view[position : position + run.size])
                if isinstance(push, Push):
                    self.publish(push, run.peer, now)
            return
        pushes, hops = relayed
        if hops >= MAX_DEPTH:
            self._drop_looping(run.peer, count, now)
            return
        kind = batch.buffer[run.start]
        if kind & AGAIN or (kind & CONFIRM and not self._client_table.subscribes(run.peer)):
            for position in range(DATA_HEADER.size, len(pushes), run.size):
                self.returns.add(bytes(pushes[position : position + run.size - DATA_HEADER.size]), run.peer)
        self._pass_on(Burst(bytes(pushes), run.size), count, run.peer, now, again=bool(kind & AGAIN))

    def _pass_on(self, pushes: Burst, count: int, peer: Address, now: float, *, again: bool) -> None:
        if not self._push(pushes, again):
            self._drop("no_parent", peer, "PUSH while no parent answers", now, count)
            return
        self.pushed += count
        self._client_table.count_published(peer, count, len(pushes.data) - count * DATA_HEADER.size)

    def _drop_looping(self, peer: Address, count: int, now: float) -> None:
        detail = f"PUSH that {MAX_DEPTH} relays have passed on; do relays have one another as parents?"
        self._drop("push_loop", peer, detail, now, count)
