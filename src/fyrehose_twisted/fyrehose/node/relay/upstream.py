"""Relay as a client: follows the stream of its parent, and passes on what its own clients publish and request."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.effects import Address, Burst, Send
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesDelivered, MessagesLost, NumbersGivenUp, NumbersSkipped
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.relay.downstream import RelayDownstream
from fyrehose_twisted.fyrehose.node.relay.other_side import OtherSideReady
from fyrehose_twisted.fyrehose.node.relay.relay_delivery import MAX_DEPTH
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import AGAIN, Asked, Deliver, Depth, Flags, Packet, Request, Status
from fyrehose_twisted.fyrehose.wire.run_codec import DeliverRun
from fyrehose_twisted.interfaces import IDatagramNode, Outputs
from fyrehose_twisted.token_bucket import TokenBucket

PARENT_SILENCE = 2.5
"""Seconds without an answer of the parent after which clients are told that there is none, before the relay itself
takes another one: so that each level of a tree adds this time, and not twice as much."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RelayUpstream(Client):
    """Node of a relay that its parent sees as a client.

    :param parents: addresses of the parents, of which it follows one; or of backbones that take over from one another.
    :param config: settings of the client. It subscribes, stores messages, and delivers nothing itself.
    """

    def __init__(
        self,
        parents: Address | Sequence[Address],
        config: ClientConfig,
        downstream: RelayDownstream,
        rng: Random,
        now: float,
        *,
        receive_buffer: int | None = None,
    ) -> None:
        self._downstream = downstream
        self._has_begun = False
        self._parent_depth = 0
        self.status: Status | None = None
        super().__init__(
            parents,
            config,
            rng,
            now,
            store=downstream.history,
            receive_buffer=receive_buffer,
            flags=Flags.RELAY,
        )
        self._request_bucket = TokenBucket(config.repair.rate, config.repair.rate, now)
        downstream.connect(self)

    # For the other side

    def has_parent(self, now: float) -> bool:
        """Return whether a parent answers, and is near enough to the backbone."""
        keepalive = self.keepalive
        return keepalive.connected and self.depth <= MAX_DEPTH and now < keepalive.answered_at + PARENT_SILENCE

    @property
    def has_output(self) -> bool:
        """Whether it has effects or events to drain."""
        return bool(self._output.effects or self._output.events)

    @property
    def term(self) -> int:
        """Term of the group of backbones; 0 for a single one."""
        return self.group.term

    @property
    def depth(self) -> int:
        """Number of relays between the backbone and this one, including this one."""
        return self._parent_depth + 1

    def push(self, pushes: Burst, again: bool) -> bool:
        """Send PUSHes to the parent, retransmitted ones if ``again``. Return whether there is a parent."""
        if not self.keepalive.connected:
            return False
        if again and not self.keepalive.extensions_supported:
            plain = bytearray(pushes.data)
            plain[:: pushes.size] = bytes((plain[0] & ~AGAIN,)) * len(plain[:: pushes.size])
            pushes = Burst(bytes(plain), pushes.size)
        self._output.effects.append(Send([pushes], (self.backbone,)))
        return True

    def request(self, first: int, last: int, now: float) -> None:
        """Send a REQUEST to the parent, within the rate that a parent accepts. The client that asked asks again."""
        if not self.keepalive.connected:
            self.drops.counts["no_parent"] += 1
        elif not self._request_bucket.take(1, now):
            self.drops.counts["request_rate"] += 1
        else:
            self.counters.requests += 1
            self._output.effects.append(Send([encode(Request(self.config.address, first, last))], (self.backbone,)))

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges from ``first`` to ``last`` that the relay itself waits for and requests."""
        stream = self._reception.reorder_buffer
        if stream is None:
            return []
        missing = list(stream.missing.intersection(first, last))
        return [*missing, (max(first, stream.highest + 1), last)] if last > stream.highest else missing

    def watch(self, now: float, until: float) -> None:
        """Ask for the progress of durable journals."""
        self.keepalive.watch_journals(now, until)
        self._deadline = None

    # Input

    def receive(self, packet: Packet, peer: Address, now: float) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.client.client.Client.receive`."""
        match packet:
            case Depth(depth=depth):
                if self._connection.accepts(packet, peer, now):
                    self._parent_depth = depth
            case Deliver(sequence, data, fetched) if self._is_for_client(
                sequence, data, live=peer == self.backbone and not fetched
            ):
                self.counters.received += 1
            case _:
                super().receive(packet, peer, now)

    def extension_received(self, extension: Status | Asked, now: float) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.client.client.Client.extension_received`."""
        super().extension_received(extension, now)
        if isinstance(extension, Asked):
            self._downstream.search_progressed(extension)
            return
        self.status = extension
        self._downstream.number_known(extension.last)
        self._downstream.status_changed(now)

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is always ``None``."""
        effects: list[Send] = []
        events: list[object] = []
        # Deliveries come one at a time, and nobody sees them here.
        while (outputs := super().drain()).events:
            effects += outputs.effects
            for event in outputs.events:
                match event:
                    case MessagesDelivered():
                        pass
                    case MessagesLost(first, last):
                        self._downstream.numbers_lost(first, last)
                        events.append(NumbersGivenUp(first, last))
                    case NumbersSkipped(first, last):
                        self._downstream.numbers_lost(first, last)
                    case _:
                        events.append(event)
        effects += outputs.effects
        if self._downstream.has_output:
            events.append(OtherSideReady())
        return Outputs(None, effects, events)

    def _delivers_received(self, run: DeliverRun, now: float) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.node.client.client.Client`. What is not new may be for a client."""
        if not self._downstream.awaits_messages:
            super()._delivers_received(run, now)
            return
        live = run.peer == self.backbone
        for sequence, data in enumerate(run.data, run.first):
            if self._is_for_client(sequence, data, live=live):
                self.counters.received += 1
            else:
                self._reception.message_received(sequence, data, run.peer, now, live=live)

    def _is_for_client(self, sequence: int, data: bytes, *, live: bool) -> bool:
        """Pass a message that is not new to the clients that asked for it. Return whether there are any."""
        waits = self._downstream.awaits_messages and self._is_past(sequence)
        return waits and self._downstream.message_arrived_again(sequence, data, live=live)

    def _is_past(self, sequence: int) -> bool:
        """Return whether a number is before the start of this relay, was received, or was given up."""
        stream, start = self._reception.reorder_buffer, self.start_sequence
        if stream is None or start is None:
            return True
        return sequence < start or (sequence <= stream.highest and sequence not in stream.missing)

    def _messages_seen(self, first: int, messages: Sequence[bytes], now: float, live: bool) -> None:
        start = self.start_sequence
        if not self._has_begun and start is not None:
            self._has_begun = True
            self._downstream.stream_began(start)
        if start is None or first >= start:
            self._downstream.messages_arrived(first, messages, now, live=live)

    def _leader_changed(self, now: float, has_taken_over: bool) -> None:
        super()._leader_changed(now, has_taken_over)
        self._parent_depth, self.status = 0, None
        if self.group.term:
            self._downstream.term_changed()


classImplements(RelayUpstream, IDatagramNode)
