"""Delivery of numbered messages to all subscribers, and of replies to single clients."""

from __future__ import annotations

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address, Burst, Datagram, Send
from fyrehose_twisted.fyrehose.events import BackboneCounters
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable
from fyrehose_twisted.fyrehose.node.backbone.repair_dispatch import RepairDispatcher
from fyrehose_twisted.fyrehose.node.backbone.sequencer import Sequencer
from fyrehose_twisted.fyrehose.node.base import NodeOutput
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, encode_deliver
from fyrehose_twisted.fyrehose.wire.packets import CONFIRM, Push
from fyrehose_twisted.fyrehose.wire.run_codec import number_pushes


class Delivery:
    """Output of a backbone in the order in which clients have to get it.

    :param sequencer: source of the numbers.
    :param repair_dispatcher: handler of repair requests, which remembers the messages and makes the replies.
    :param output: receives the effects.
    """

    def __init__(
        self,
        sequencer: Sequencer,
        repair_dispatcher: RepairDispatcher,
        client_table: ClientTable,
        counters: BackboneCounters,
        output: NodeOutput,
    ) -> None:
        self._sequencer = sequencer
        self._repair_dispatcher = repair_dispatcher
        self._client_table = client_table
        self._counters = counters
        self._output = output

    def publish(self, push: Push, peer: Address, now: float) -> None:
        """Number a message and deliver it."""
        sequence = self._sequencer.take(1, now)
        datagram = encode_deliver(sequence, push.data)
        self._repair_dispatcher.published(sequence, datagram, len(datagram), now)
        self._client_table.count_published(peer, 1, len(push.data))
        self.deliver(datagram, 1, len(push.data))
        if push.confirm:
            self._confirm(datagram, peer)

    def publish_run(self, batch: Batch, run: DatagramRun, count: int, now: float) -> None:
        """Number the first ``count`` PUSHes of a run where they lie, and deliver them."""
        start, size = run.start, run.size
        stop = start + count * size
        confirm = batch.buffer[start] & CONFIRM
        first = self._sequencer.take(count, now)
        number_pushes(batch.buffer, start, stop, size, first)
        burst = Burst(batch.view[start:stop], size)
        self._repair_dispatcher.published(first, bytes(burst.data), size, now)
        data_bytes = count * (size - DATA_HEADER.size)
        self._client_table.count_published(run.peer, count, data_bytes)
        self.deliver(burst, count, data_bytes)
        if confirm:
            self._confirm(burst, run.peer)

    def publish_again(self, batch: Batch, run: DatagramRun, count: int, now: float) -> None:
        """Number the retransmitted PUSHes at the start of a run that have no number yet, and redeliver the others."""
        redeliver, new, seen = self._repair_dispatcher.redeliver, run.start, set[bytes]()
        for position in range(run.start, run.start + count * run.size, run.size):
            data = bytes(batch.view[position + DATA_HEADER.size : position + run.size])
            if data in seen or self._repair_dispatcher.has_numbered(data):
                # The messages before it come first.
                self._publish_rows(batch, run, new, position, now)
                new, seen = position, set()
                if redeliver(data, run.peer):
                    self._counters.repeated += 1
                    new += run.size
                    continue
            seen.add(data)
        self._publish_rows(batch, run, new, run.start + count * run.size, now)

    def _publish_rows(self, batch: Batch, run: DatagramRun, start: int, stop: int, now: float) -> None:
        if start < stop:
            self.publish_run(batch, run._replace(start=start), (stop - start) // run.size, now)

    def deliver(self, datagrams: Datagram | Burst, count: int, data_bytes: int) -> None:
        """Send ``count`` new messages with ``data_bytes`` bytes of DATA to all subscribers."""
        self.flush_replies()
        counters, table = self._counters, self._client_table
        receivers = table.subscriber_count
        counters.published += count
        counters.published_bytes += data_bytes
        counters.delivered += count * receivers
        counters.delivered_bytes += data_bytes * receivers
        if table.audience.listeners:
            counters.multicast += count
        subscribers, others = table.subscribers, table.subscribers_with_macs
        if subscribers:
            self._append([datagrams], subscribers, others)
        if others:
            self._append(table.macs.add_macs((datagrams,)), others, subscribers)

    def _append(
        self, datagrams: list[Datagram | Burst], peers: tuple[Address, ...], others: tuple[Address, ...]
    ) -> None:
        """Send to ``peers``, together with what was sent to them just before, or before the last to ``others``."""
        effects = self._output.effects
        last = effects[-1] if effects else None
        if last is not None and last.peers is others and len(effects) > 1:
            last = effects[-2]
        if last is not None and last.peers is peers and isinstance(last.datagrams, list):
            last.datagrams.extend(datagrams)
        else:
            effects.append(Send(datagrams, peers))

    def _confirm(self, datagrams: Datagram | Burst, peer: Address) -> None:
        if not self._client_table.subscribes(peer):
            self.send(datagrams, peer)

    def flush_replies(self) -> None:
        """Send the replies to neighbouring REQUESTs, grouped by client."""
        replies = self._repair_dispatcher.take_replies()
        if replies:
            self._output.effects += [
                Send(self._with_macs(datagrams, peer), (peer,)) for peer, datagrams in replies.items()
            ]

    def send(self, datagrams: Datagram | Burst, peer: Address) -> None:
        """Send datagrams to one client, after the replies that came before."""
        self.flush_replies()
        self._output.effects.append(Send(self._with_macs([datagrams], peer), (peer,)))

    def _with_macs(self, datagrams: list[Datagram | Burst], peer: Address) -> list[Datagram | Burst]:
        """Return ``datagrams`` as the client at ``peer`` wants them."""
        table = self._client_table
        return table.macs.add_macs(datagrams) if table.gets_macs(peer) else datagrams
