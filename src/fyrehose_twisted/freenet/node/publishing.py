"""Packets go up to the root and down to everybody (document 003, "When we get a PublishData")."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from fyrehose_twisted.errors import MessageTooLarge, PublishQueueFull, UnencodableMessage
from fyrehose_twisted.freenet.events import (
    UNCERTAIN,
    Delivered,
    Missed,
    NotPublished,
    Packet,
    Published,
    Renumbered,
)
from fyrehose_twisted.freenet.node.context import Core
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.packet_window import FAR, NUMBERS, Arrival, ahead, identity
from fyrehose_twisted.freenet.node.stream import Stream
from fyrehose_twisted.freenet.node.upstream import Backlog, Upward
from fyrehose_twisted.freenet.wire.messages import (
    MAX_DATA,
    PublishCollision,
    PublishData,
    PublishFailed,
    PublishSucceeded,
    Recall,
    RejectedLoop,
    SubscribeData,
)
from fyrehose_twisted.freenet.wire.signing import can_verify, is_signed, verify

MAX_BACKLOG = 4_096
"""Packets of the application that may wait."""
TRIES = 16
"""How often a packet whose number is taken gets another one."""
LASTING = frozenset({"bad-signature", "timed-out"})
"""Reasons for a failure that hold for a repeated packet as well."""
SUBSCRIBER_POLL = 0.5
"""Seconds between two looks of a new root for a subscriber that a packet needs."""
FIRST_NUMBERS = 2**62
"""The first number of a stream is drawn below this."""


class Publishing:
    """Brings packets to the root, and from the parent to the subscribers."""

    def __init__(self, core: Core) -> None:
        self._core = core

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
        if number is not None and not 0 <= number < NUMBERS:
            raise UnencodableMessage(f"number={number!r} is outside 0 to 2**63 - 1")
        core = self._core
        stream = core.streams.get(key)
        if stream is None or not stream.local:
            core.tell(NotPublished(token, key, "no-stream"))
            return
        if len(stream.backlog) >= MAX_BACKLOG:
            raise PublishQueueFull(f"{MAX_BACKLOG:,} packets of {key.hex()} wait already; wait for some of them first")
        stream.backlog.append(Backlog(token, data, number, sign, 0, not need_subscriber))
        self._from_backlog(stream, now)

    def _from_backlog(self, stream: Stream, now: float) -> None:
        core = self._core
        while (stream.lifted or stream.backlog) and len(stream.upward) < core.policy.max_waiting:
            if not stream.lifted:
                self._number(stream, stream.backlog.popleft(), None, now)
                continue
            number, data = stream.lifted.popleft()
            core.counts["lifted"] += 1
            uid = core.new_uid()
            core.recent.add(uid)
            self._send_up(stream, Upward(uid, None, None, number, data, now + core.policy.publish_timeout, None), uid)

    def _number(self, stream: Stream, own: Backlog, suggested: int | None, now: float) -> None:
        number = own.number
        if number is None:
            number = self._next_number(stream, suggested)
        data = own.data if own.sign is None else own.sign(number)
        if len(data) > MAX_DATA:
            self._core.tell(NotPublished(own.token, stream.key, "too-large"))
            return
        uid = self._core.new_uid()
        self._core.recent.add(uid)
        until = now + self._core.policy.publish_timeout
        self._take(stream, Upward(uid, None, own, number, data, until, None, own.wanted), now)

    def _next_number(self, stream: Stream, suggested: int | None) -> int:
        """Return a number that neither this node nor, as far as is known, anybody else has given.

        Whoever suggests one is nearer to the root, and knows better where the numbers are.
        """
        first = suggested if suggested is not None else stream.packets.next
        under_way = [upward.number for upward in stream.upward.values() if upward.own is not None]
        if first is None:
            first = (under_way[0] + 1) % NUMBERS if under_way else self._core.rng.randrange(FIRST_NUMBERS)
        for number in under_way:
            if 0 <= ahead(number, first) <= FAR:
                first = (number + 1) % NUMBERS
        return first

    # On the way up

    def publish_received(self, message: PublishData, neighbour: Neighbour, now: float) -> None:
        """A subscriber has a packet for the root."""
        core, uid = self._core, message.uid
        stream = core.streams.get(message.key)
        if stream is None:
            core.send(neighbour, PublishFailed(uid, "no-stream"))
        elif neighbour not in stream.subscribers:
            core.counts["unsubscribed_publishers"] += 1
            core.send(neighbour, PublishFailed(uid, "not-subscribed"))
        elif not core.recent.add(uid):
            core.counts["loops"] += 1
            core.send(neighbour, RejectedLoop(uid))
        elif len(stream.upward) >= core.policy.max_waiting:
            core.send(neighbour, PublishFailed(uid, "queue-full"))
        else:
            until = now + core.policy.publish_timeout
            upward = Upward(uid, neighbour, None, message.packet, message.data, until, None, message.wanted)
            self._take(stream, upward, now)

    def _take(self, stream: Stream, upward: Upward, now: float) -> None:
        """Answer for a packet if that is possible here, send it on otherwise."""
        core, number = self._core, upward.number
        known = stream.packets.look(number, upward.data)
        newest = stream.packets.newest
        if known is Arrival.SAME:
            self._is_published(stream, upward)
        elif known is Arrival.CONFLICT or (known is Arrival.OLD and stream.is_root):
            self._collides(stream, upward, stream.packets.next or 0, now)
        elif not stream.is_root:
            self._send_up(stream, upward, upward.uid)
        elif newest is not None and ahead(number, newest) > FAR:
            self._collides(stream, upward, stream.packets.next or 0, now)
        elif not self._signature_is_right(stream.key, number, upward.data):
            core.counts["bad_signatures"] += 1
            self._fails(stream, upward, "bad-signature")
        elif not self._is_wanted(stream, upward):
            if now < min(stream.regrows_until, upward.until):
                self._wait_for_subscriber(stream, upward, now)
                return
            core.counts["without_subscribers"] += 1
            self._fails(stream, upward, "no-subscribers")
        elif waiting := self._wanted_by_now(stream):
            # They come first, and one of them may have this number, or numbers far away from it.
            for one in [*waiting, upward]:
                self._take(stream, one, now)
        else:
            self._spread(stream, number, upward.data, upward.origin)
            self._is_published(stream, upward)

    def _wait_for_subscriber(self, stream: Stream, upward: Upward, now: float) -> None:
        """Hold a packet at a new root, which subscribers of the old root may not have found yet."""
        core, uid = self._core, upward.uid
        stream.upward[uid] = upward._replace(sent=None)
        core.upward[uid] = stream
        core.at(min(now + SUBSCRIBER_POLL, stream.regrows_until, upward.until), self._look_for_subscriber, stream, uid)

    def _look_for_subscriber(self, stream: Stream, uid: int, now: float) -> None:
        if self._core.upward.get(uid) is stream and stream.is_root:
            self._take(stream, self._forget(stream, uid), now)
            self._from_backlog(stream, now)

    def _wanted_by_now(self, stream: Stream) -> list[Upward]:
        """Take out the packets that a root holds and that are wanted by now, oldest first."""
        wanted = [uid for uid, upward in stream.upward.items() if self._is_wanted(stream, upward)]
        return [self._forget(stream, uid) for uid in wanted]

    def _is_wanted(self, stream: Stream, upward: Upward) -> bool:
        """Say whether a subscriber gets the packet here, besides the sender, or the packet is wanted all the same."""
        origin = upward.origin
        others = any(subscriber is not origin for subscriber in stream.subscribers)
        return upward.wanted or others or (origin is not None and stream.local)

    def _send_up(self, stream: Stream, upward: Upward, uid: int) -> None:
        """Send a packet to the parent under some uid, or keep it until there is a parent."""
        core = self._core
        parent = stream.parent
        stream.upward[uid] = upward._replace(sent=parent)
        core.upward[uid] = stream
        core.at(upward.until, self._expired, stream, uid)
        if parent is not None:
            htl = core.policy.max_htl
            wanted = self._is_wanted(stream, upward)
            core.send(parent, PublishData(uid, stream.key, upward.number, core.location, upward.data, htl, wanted))

    def attached(self, stream: Stream, known: int | None, now: float) -> None:
        """A stream has another parent, or this node is the root now: what the root has not answered for goes there.

        :param known: the last packet number that a new parent knows this node to have. What has come since then, in
            another tree perhaps, it may lack.
        """
        core = self._core
        waiting, stream.upward = stream.upward, {}
        for uid in waiting:
            del core.upward[uid]
        for uid, upward in waiting.items():
            fresh = uid
            if upward.sent is not None:
                # The root that is gone may have given it to subscribers, which look for a parent now.
                upward = upward._replace(wanted=True, repeated=True)
                # Who has seen the uid would take it for a loop.
                fresh = core.new_uid()
                core.recent.add(fresh)
            if stream.parent is None:
                self._take(stream, upward, now)
            else:
                self._send_up(stream, upward, fresh)
        self._lift(stream, [] if known is None else stream.packets.after(known), now)

    def recalled(self, message: Recall, neighbour: Neighbour, now: float) -> None:
        """The parent lacks packets: it gets those that are here, or those below are asked for theirs."""
        core = self._core
        stream = core.streams.get(message.key)
        if stream is None or stream.parent is not neighbour or stream.recalled == stream.lives:
            core.counts["strays"] += 1
            return
        stream.recalled = stream.lives
        packets = stream.packets.after(message.after)
        if packets:
            self._lift(stream, packets, now)
            return
        stream.packets.reopen()
        for subscriber in stream.subscribers:
            core.send(subscriber, message)

    def _lift(self, stream: Stream, packets: list[Packet], now: float) -> None:
        """Send packets up that are published already: the root may be another one, which lacks them."""
        stream.lifted = deque(packets)
        self._from_backlog(stream, now)

    # What becomes of it

    def succeeded(self, message: PublishSucceeded, neighbour: Neighbour, now: float) -> None:
        """The root has a packet, and so everybody gets it."""
        found = self._answered(message.uid, neighbour)
        if found is None:
            return
        stream, upward = found
        known = stream.packets.look(upward.number, upward.data)
        checked = known is Arrival.CONFLICT or (known is Arrival.NEW and stream.local)
        if checked and not self._signature_is_right(stream.key, upward.number, upward.data):
            # The root should have seen it.
            self._core.counts["bad_signatures"] += 1
            self._fails(stream, upward, "bad-signature")
            self._from_backlog(stream, now)
            return
        if known is Arrival.CONFLICT or (known is Arrival.OLD and not is_signed(stream.key)):
            # The root knows better.
            known = self._retreat(stream, upward.number, upward.data)
        if known is Arrival.NEW:
            self._spread(stream, upward.number, upward.data, upward.origin)
        self._is_published(stream, upward)
        self._from_backlog(stream, now)

    def collided(self, message: PublishCollision, neighbour: Neighbour, now: float) -> None:
        """Another packet has the number."""
        found = self._answered(message.uid, neighbour)
        if found is not None:
            self._collides(*found, message.next, now)
            self._from_backlog(found[0], now)

    def failed(self, message: PublishFailed, neighbour: Neighbour, now: float) -> None:
        """A packet did not get to the root."""
        found = self._answered(message.uid, neighbour)
        if found is not None:
            self._fails(*found, message.reason)
            self._from_backlog(found[0], now)

    def rejected_loop(self, uid: int, neighbour: Neighbour, now: float) -> None:
        """A packet was there before."""
        found = self._answered(uid, neighbour)
        if found is not None:
            self._fails(*found, "loop")
            self._from_backlog(found[0], now)

    def _answered(self, uid: int, neighbour: Neighbour) -> tuple[Stream, Upward] | None:
        stream = self._core.upward.get(uid)
        if stream is None or stream.upward[uid].sent is not neighbour:
            return None
        return stream, self._forget(stream, uid)

    def _forget(self, stream: Stream, uid: int) -> Upward:
        del self._core.upward[uid]
        return stream.upward.pop(uid)

    def _expired(self, stream: Stream, uid: int, now: float) -> None:
        if self._core.upward.get(uid) is stream:
            self._fails(stream, self._forget(stream, uid), "timed-out")
            self._from_backlog(stream, now)

    def _is_published(self, stream: Stream, upward: Upward) -> None:
        if upward.origin is not None:
            self._core.send(upward.origin, PublishSucceeded(upward.uid))
        elif upward.own is not None:
            self._core.tell(Published(upward.own.token, stream.key, upward.number))

    def _collides(self, stream: Stream, upward: Upward, free: int, now: float) -> None:
        core, own = self._core, upward.own
        core.counts["collisions"] += 1
        if upward.repeated:
            # An earlier root may have accepted it, so another number could publish it twice.
            self._fails(stream, upward, "uncertain")
        elif upward.origin is not None:
            core.send(upward.origin, PublishCollision(upward.uid, free))
        elif own is None:
            return
        elif own.number is not None or own.tries >= TRIES:
            core.tell(NotPublished(own.token, stream.key, "collision", free))
        else:
            self._number(stream, own._replace(tries=own.tries + 1), free, now)

    def _fails(self, stream: Stream, upward: Upward, reason: str) -> None:
        core = self._core
        core.counts["publish_failures"] += 1
        if upward.repeated and reason not in LASTING:
            # The refusal says nothing of the copy that an earlier parent was sent.
            reason = "uncertain"
        if upward.origin is not None:
            core.send(upward.origin, PublishFailed(upward.uid, reason))
        elif upward.own is not None:
            if reason in UNCERTAIN:
                core.counts["uncertain"] += 1
            core.tell(NotPublished(upward.own.token, stream.key, reason))

    # On the way down

    def data_received(self, message: SubscribeData, neighbour: Neighbour, now: float) -> None:
        """The parent has a packet."""
        core = self._core
        key, number, data = message
        stream = core.streams.get(key)
        if stream is None or stream.parent is not neighbour:
            core.counts["data_not_from_parent"] += 1
            core.correct(neighbour, key)
            return
        known = stream.packets.look(number, data)
        newest = stream.packets.newest
        # The root may have counted otherwise than we were told; a signed one may be old, and repeated.
        otherwise = known is Arrival.CONFLICT or (known is Arrival.OLD and not is_signed(key))
        if known is not Arrival.NEW and not otherwise:
            core.counts[f"data_{known.value}"] += 1
            return
        # A number far ahead would make everybody below deaf to all that follows, and a retreat forgets what is here.
        checked = stream.local or otherwise or (newest is not None and ahead(number, newest) > FAR)
        if checked and not self._signature_is_right(key, number, data):
            core.counts["bad_signatures"] += 1
            return
        if otherwise:
            self._retreat(stream, number, data)
        self._spread(stream, number, data, None)

    def _retreat(self, stream: Stream, number: int, data: bytes) -> Arrival:
        """Forget where the numbers were, so that a packet fits."""
        stream.renumbered = True
        stream.packets.retreat()
        if stream.packets.look(number, data) is not Arrival.NEW:
            stream.packets.retreat()
        return stream.packets.look(number, data)

    def _signature_is_right(self, key: bytes, number: int, data: bytes) -> bool:
        if not is_signed(key):
            return True
        if not can_verify():
            # Subscribers, who have what it takes, will see.
            self._core.counts["unverified"] += 1
            return True
        return verify(key, number, data)

    def _spread(self, stream: Stream, number: int, data: bytes, source: Neighbour | None) -> None:
        """Keep a packet, and give it to everybody below but to whom it came from."""
        core, key = self._core, stream.key
        far = stream.packets.is_far(number)
        missed = stream.packets.put(number, data)
        if far or stream.renumbered:
            core.counts["renumbered"] += 1
            if stream.local:
                core.tell(Renumbered(key, number))
            stream.renumbered = False
        message = SubscribeData(key, number, data)
        for subscriber in stream.subscribers:
            if subscriber is not source:
                core.send(subscriber, message)
        if stream.local:
            for first, last in missed:
                core.tell(Missed(key, first, last))
            if stream.given.add(identity(number, data)):
                core.tell(Delivered(key, [Packet(number, data)]))
            else:
                core.counts["given_before"] += 1

    def closed(self, stream: Stream) -> None:
        """A stream is gone, and whatever waited with it."""
        for uid, upward in tuple(stream.upward.items()):
            self._core.upward.pop(uid, None)
            if upward.sent is None:
                self._fails(stream, upward, "no-stream")
            elif upward.origin is None:
                self._fails(stream, upward, "uncertain")
            # No answer for a packet of a subscriber: it was dismissed, and repeats the packet to its next parent.
        stream.upward.clear()
        while stream.backlog:
            self._core.tell(NotPublished(stream.backlog.popleft().token, stream.key, "no-stream"))
