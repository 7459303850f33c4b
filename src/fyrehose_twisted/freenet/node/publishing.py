"""Forwarding of packets up to the root (document 003, "When we get a PublishData")."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from fyrehose_twisted.errors import MessageTooLarge, PublishQueueFull, UnencodableMessage
from fyrehose_twisted.freenet.events import (
    UNCERTAIN_REASONS,
    Packet,
    PacketNotPublished,
    PacketPublished,
)
from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.distribution import PacketDistributor
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.packet_window import (
    MAX_JUMP,
    NUMBER_SPACE,
    PacketClass,
    serial_difference,
)
from fyrehose_twisted.freenet.node.stream import Stream
from fyrehose_twisted.freenet.node.upstream import QueuedPacket, UpstreamPacket
from fyrehose_twisted.freenet.wire.messages import (
    MAX_DATA,
    PublishCollision,
    PublishData,
    PublishFailed,
    PublishSucceeded,
    Recall,
    RejectedLoop,
)
from fyrehose_twisted.freenet.wire.signing import is_signed

MAX_QUEUED_PACKETS = 4_096
"""Maximum number of queued packets of the application."""
MAX_NUMBER_ATTEMPTS = 16
"""Maximum number of new numbers for a packet whose number is taken."""
FINAL_REASONS = frozenset({"bad-signature", "timed-out"})
"""Failure reasons that also hold for a packet that was resent."""
SUBSCRIBER_POLL_INTERVAL = 0.5
"""Seconds between two checks of a new root for a subscriber that a packet needs."""
FIRST_NUMBER_LIMIT = 2**62
"""Upper bound, exclusive, of the random first number of a stream."""


class PacketForwarder:
    """Forwards packets to the root, and has those that the root accepts distributed."""

    def __init__(self, context: NodeContext, distributor: PacketDistributor) -> None:
        self._context = context
        self._distributor = distributor

    # From the application

    def publish(
        self,
        key: bytes,
        data: bytes,
        token: Any,
        now: float,
        number: int | None,
        sign: Callable[[int], bytes] | None,
        need_subscriber: bool,
    ) -> None:
        """See :meth:`~fyrehose_twisted.freenet.node.node.FreenetNode.publish`."""
        if len(data) > MAX_DATA:
            raise MessageTooLarge(len(data), MAX_DATA)
        if number is not None and not 0 <= number < NUMBER_SPACE:
            raise UnencodableMessage(f"number={number!r} is outside 0 to 2**63 - 1")
        core = self._context
        stream = core.streams.get(key)
        if stream is None or not stream.local:
            core.emit(PacketNotPublished(token, key, "no-stream"))
            return
        if len(stream.publish_queue) >= MAX_QUEUED_PACKETS:
            raise PublishQueueFull(
                f"{MAX_QUEUED_PACKETS:,} packets of {key.hex()} are queued already; wait for some of them first"
            )
        stream.publish_queue.append(QueuedPacket(token, data, number, sign, 0, not need_subscriber))
        self._send_queued(stream, now)

    def _send_queued(self, stream: Stream, now: float) -> None:
        core = self._context
        while (stream.resend_queue or stream.publish_queue) and len(stream.upstream) < core.policy.max_waiting:
            if not stream.resend_queue:
                self._assign_number(stream, stream.publish_queue.popleft(), None, now)
                continue
            number, data = stream.resend_queue.popleft()
            core.counters["lifted"] += 1
            uid = core.new_uid()
            core.recent_uids.add(uid)
            self._send_upstream(
                stream, UpstreamPacket(uid, None, None, number, data, now + core.policy.publish_timeout, None), uid
            )

    def _assign_number(self, stream: Stream, own: QueuedPacket, suggested: int | None, now: float) -> None:
        number = own.number
        if number is None:
            number = self._next_number(stream, suggested)
        data = own.data if own.sign is None else own.sign(number)
        if len(data) > MAX_DATA:
            self._context.emit(PacketNotPublished(own.token, stream.key, "too-large"))
            return
        uid = self._context.new_uid()
        self._context.recent_uids.add(uid)
        until = now + self._context.policy.publish_timeout
        self._process(stream, UpstreamPacket(uid, None, own, number, data, until, None, own.wanted), now)

    def _next_number(self, stream: Stream, suggested: int | None) -> int:
        """Return a packet number that, as far as this node knows, is free.

        A suggested number comes from a node nearer to the root, whose view is more recent.
        """
        first = suggested if suggested is not None else stream.packets.next_number
        under_way = [upward.number for upward in stream.upstream.values() if upward.queued_packet is not None]
        if first is None:
            first = (under_way[0] + 1) % NUMBER_SPACE if under_way else self._context.rng.randrange(FIRST_NUMBER_LIMIT)
        for number in under_way:
            if 0 <= serial_difference(number, first) <= MAX_JUMP:
                first = (number + 1) % NUMBER_SPACE
        return first

    # Packets going up

    def publish_received(self, message: PublishData, neighbour: Neighbour, now: float) -> None:
        """Handle a packet for the root from a subscriber."""
        core, uid = self._context, message.uid
        stream = core.streams.get(message.key)
        if stream is None:
            core.send(neighbour, PublishFailed(uid, "no-stream"))
        elif neighbour not in stream.subscribers:
            core.counters["unsubscribed_publishers"] += 1
            core.send(neighbour, PublishFailed(uid, "not-subscribed"))
        elif not core.recent_uids.add(uid):
            core.counters["loops"] += 1
            core.send(neighbour, RejectedLoop(uid))
        elif len(stream.upstream) >= core.policy.max_waiting:
            core.send(neighbour, PublishFailed(uid, "queue-full"))
        else:
            until = now + core.policy.publish_timeout
            upward = UpstreamPacket(uid, neighbour, None, message.packet, message.data, until, None, message.wanted)
            self._process(stream, upward, now)

    def _process(self, stream: Stream, upward: UpstreamPacket, now: float) -> None:
        """Answer a packet if this node can; otherwise forward it to the parent."""
        core, number = self._context, upward.number
        known = stream.packets.classify(number, upward.data)
        newest = stream.packets.newest
        if known is PacketClass.SAME:
            self._confirm(stream, upward)
        elif known is PacketClass.CONFLICT or (known is PacketClass.OLD and stream.is_root):
            self._handle_collision(stream, upward, stream.packets.next_number or 0, now)
        elif not stream.is_root:
            self._send_upstream(stream, upward, upward.uid)
        elif newest is not None and serial_difference(number, newest) > MAX_JUMP:
            self._handle_collision(stream, upward, stream.packets.next_number or 0, now)
        elif not self._distributor.signature_is_valid(stream.key, number, upward.data):
            core.counters["bad_signatures"] += 1
            self._fail(stream, upward, "bad-signature")
        elif not self._is_wanted(stream, upward):
            if now < min(stream.regrowth_until, upward.deadline):
                self._wait_for_subscriber(stream, upward, now)
                return
            core.counters["without_subscribers"] += 1
            self._fail(stream, upward, "no-subscribers")
        elif waiting := self._take_wanted(stream):
            # They are older, and one of them may have this number or a distant one.
            for packet in [*waiting, upward]:
                self._process(stream, packet, now)
        else:
            self._distributor.distribute(stream, number, upward.data, upward.origin)
            self._confirm(stream, upward)

    def _wait_for_subscriber(self, stream: Stream, upward: UpstreamPacket, now: float) -> None:
        """Hold a packet at a new root until the old root's subscribers may have found it."""
        core, uid = self._context, upward.uid
        stream.upstream[uid] = upward._replace(sent_to=None)
        core.upstream[uid] = stream
        core.call_at(
            min(now + SUBSCRIBER_POLL_INTERVAL, stream.regrowth_until, upward.deadline),
            self._recheck_subscribers,
            stream,
            uid,
        )

    def _recheck_subscribers(self, stream: Stream, uid: int, now: float) -> None:
        if self._context.upstream.get(uid) is stream and stream.is_root:
            self._process(stream, self._remove(stream, uid), now)
            self._send_queued(stream, now)

    def _take_wanted(self, stream: Stream) -> list[UpstreamPacket]:
        """Remove and return the held packets that have a subscriber by now, oldest first."""
        wanted = [uid for uid, upward in stream.upstream.items() if self._is_wanted(stream, upward)]
        return [self._remove(stream, uid) for uid in wanted]

    def _is_wanted(self, stream: Stream, upward: UpstreamPacket) -> bool:
        """Return True if a subscriber other than the sender receives the packet, or if it needs none."""
        origin = upward.origin
        others = any(subscriber is not origin for subscriber in stream.subscribers)
        return upward.wanted or others or (origin is not None and stream.local)

    def _send_upstream(self, stream: Stream, upward: UpstreamPacket, uid: int) -> None:
        """Send a packet to the parent under ``uid``, or hold it until there is a parent."""
        core = self._context
        parent = stream.parent
        stream.upstream[uid] = upward._replace(sent_to=parent)
        core.upstream[uid] = stream
        core.call_at(upward.deadline, self._timed_out, stream, uid)
        if parent is not None:
            htl = core.policy.max_htl
            wanted = self._is_wanted(stream, upward)
            core.send(parent, PublishData(uid, stream.key, upward.number, core.location, upward.data, htl, wanted))

    def stream_attached(self, stream: Stream, known: int | None, now: float) -> None:
        """Resend unanswered packets after the parent of a stream changed or this node became the root.

        :param known: last packet number that a new parent knows this node to have. It may lack packets that arrived
            since, perhaps in another tree.
        """
        core = self._context
        waiting, stream.upstream = stream.upstream, {}
        for uid in waiting:
            del core.upstream[uid]
        for uid, upward in waiting.items():
            fresh = uid
            if upward.sent_to is not None:
                # The lost root may have sent the packet to subscribers that are now searching for a parent.
                upward = upward._replace(wanted=True, resent=True)
                # A node that has seen the uid would report a loop.
                fresh = core.new_uid()
                core.recent_uids.add(fresh)
            if stream.parent is None:
                self._process(stream, upward, now)
            else:
                self._send_upstream(stream, upward, fresh)
        self._resend_upstream(stream, [] if known is None else stream.packets.packets_after(known), now)

    def recall_received(self, message: Recall, neighbour: Neighbour, now: float) -> None:
        """Resend packets that the parent lacks, or pass its request on to the subscribers."""
        core = self._context
        stream = core.streams.get(message.key)
        if stream is None or stream.parent is not neighbour or stream.resent_generation == stream.generation:
            core.counters["strays"] += 1
            return
        stream.resent_generation = stream.generation
        packets = stream.packets.packets_after(message.after)
        if packets:
            self._resend_upstream(stream, packets, now)
            return
        stream.packets.clear_floor()
        for subscriber in stream.subscribers:
            core.send(subscriber, message)

    def _resend_upstream(self, stream: Stream, packets: list[Packet], now: float) -> None:
        """Resend published packets to the parent, since a new root may lack them."""
        stream.resend_queue = deque(packets)
        self._send_queued(stream, now)

    # Answers from the root

    def publish_succeeded(self, message: PublishSucceeded, neighbour: Neighbour, now: float) -> None:
        """Distribute a packet that the root accepted."""
        found = self._take_answered(message.uid, neighbour)
        if found is None:
            return
        stream, upward = found
        known = stream.packets.classify(upward.number, upward.data)
        checked = known is PacketClass.CONFLICT or (known is PacketClass.NEW and stream.local)
        if checked and not self._distributor.signature_is_valid(stream.key, upward.number, upward.data):
            # The root should have rejected it.
            self._context.counters["bad_signatures"] += 1
            self._fail(stream, upward, "bad-signature")
            self._send_queued(stream, now)
            return
        if known is PacketClass.CONFLICT or (known is PacketClass.OLD and not is_signed(stream.key)):
            # The root is authoritative.
            known = self._distributor.roll_back(stream, upward.number, upward.data)
        if known is PacketClass.NEW:
            self._distributor.distribute(stream, upward.number, upward.data, upward.origin)
        self._confirm(stream, upward)
        self._send_queued(stream, now)

    def publish_collided(self, message: PublishCollision, neighbour: Neighbour, now: float) -> None:
        """Handle the answer that another packet has the number."""
        found = self._take_answered(message.uid, neighbour)
        if found is not None:
            self._handle_collision(*found, message.next, now)
            self._send_queued(found[0], now)

    def publish_failed(self, message: PublishFailed, neighbour: Neighbour, now: float) -> None:
        """Handle the answer that a packet failed."""
        found = self._take_answered(message.uid, neighbour)
        if found is not None:
            self._fail(*found, message.reason)
            self._send_queued(found[0], now)

    def rejected_loop(self, uid: int, neighbour: Neighbour, now: float) -> None:
        """Handle the answer that a packet looped."""
        found = self._take_answered(uid, neighbour)
        if found is not None:
            self._fail(*found, "loop")
            self._send_queued(found[0], now)

    def _take_answered(self, uid: int, neighbour: Neighbour) -> tuple[Stream, UpstreamPacket] | None:
        stream = self._context.upstream.get(uid)
        if stream is None or stream.upstream[uid].sent_to is not neighbour:
            return None
        return stream, self._remove(stream, uid)

    def _remove(self, stream: Stream, uid: int) -> UpstreamPacket:
        del self._context.upstream[uid]
        return stream.upstream.pop(uid)

    def _timed_out(self, stream: Stream, uid: int, now: float) -> None:
        if self._context.upstream.get(uid) is stream:
            self._fail(stream, self._remove(stream, uid), "timed-out")
            self._send_queued(stream, now)

    def _confirm(self, stream: Stream, upward: UpstreamPacket) -> None:
        if upward.origin is not None:
            self._context.send(upward.origin, PublishSucceeded(upward.uid))
        elif upward.queued_packet is not None:
            self._context.emit(PacketPublished(upward.queued_packet.token, stream.key, upward.number))

    def _handle_collision(self, stream: Stream, upward: UpstreamPacket, free: int, now: float) -> None:
        core, own = self._context, upward.queued_packet
        core.counters["collisions"] += 1
        if upward.resent:
            # An earlier root may have accepted it. Under another number it could be published twice.
            self._fail(stream, upward, "uncertain")
        elif upward.origin is not None:
            core.send(upward.origin, PublishCollision(upward.uid, free))
        elif own is None:
            return
        elif own.number is not None or own.attempts >= MAX_NUMBER_ATTEMPTS:
            core.emit(PacketNotPublished(own.token, stream.key, "collision", free))
        else:
            self._assign_number(stream, own._replace(attempts=own.attempts + 1), free, now)

    def _fail(self, stream: Stream, upward: UpstreamPacket, reason: str) -> None:
        core = self._context
        core.counters["publish_failures"] += 1
        if upward.resent and reason not in FINAL_REASONS:
            # The failure says nothing about the copy that was sent to an earlier parent.
            reason = "uncertain"
        if upward.origin is not None:
            core.send(upward.origin, PublishFailed(upward.uid, reason))
        elif upward.queued_packet is not None:
            if reason in UNCERTAIN_REASONS:
                core.counters["uncertain"] += 1
            core.emit(PacketNotPublished(upward.queued_packet.token, stream.key, reason))

    def stream_closed(self, stream: Stream) -> None:
        """Fail the packets of a stream that was dropped."""
        for uid, upward in tuple(stream.upstream.items()):
            self._context.upstream.pop(uid, None)
            if upward.sent_to is None:
                self._fail(stream, upward, "no-stream")
            elif upward.origin is None:
                self._fail(stream, upward, "uncertain")
            # A packet of a subscriber gets no answer: the subscriber was dismissed, and resends it to its next parent.
        stream.upstream.clear()
        while stream.publish_queue:
            self._context.emit(PacketNotPublished(stream.publish_queue.popleft().token, stream.key, "no-stream"))
