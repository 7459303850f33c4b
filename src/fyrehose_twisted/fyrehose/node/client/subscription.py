"""One subscriber's place in the stream: where it begins, what is missing, what can be handed over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from fyrehose_twisted.errors import SequenceRegressed
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import ClientCounters, Lost
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import Arrival, Reassembly, Run
from fyrehose_twisted.fyrehose.node.client.repair import MAX_RANGE, Repairs
from fyrehose_twisted.fyrehose.node.client.start_position import Joining
from fyrehose_twisted.fyrehose.node.client.stream_head import DOUBT, LEAP, PLAUSIBLE_JUMP, Tide
from fyrehose_twisted.fyrehose.node.drop_log import Drops
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE
from fyrehose_twisted.interfaces import IMessageStore

SLOWEST_PROBE = 30.0
"""Seconds between tail probes of a stream on which nothing happens."""


class Subscription:
    """Messages go in as they come; :attr:`ready` and :attr:`requests` come out.

    :param backbone: how to name the backbone in errors.
    :param store: where messages are kept; what found no room to wait is taken from there.
    :param kept: called with messages that are seen for the first time: the first number, and DATA of each.
    :ivar ready: what can be handed over, in order; whoever takes it clears it.
    :ivar requests: ranges to ask for; whoever asks clears it.
    :ivar paused: hand nothing over.
    :ivar began: the number that the stream begins with, once there is one.
    :ivar reported_last: the last number that the backbone has said to have given; 0 if it has not said so.
    :ivar failure: why this has stopped for good, if it has.
    """

    def __init__(
        self,
        backbone: str,
        config: ClientConfig,
        store: IMessageStore,
        counters: ClientCounters,
        drops: Drops,
        rng: Random,
        now: float,
        *,
        kept: Callable[[int, Sequence[bytes], float], None],
    ) -> None:
        self.ready: list[Run | Lost] = []
        self.requests: list[tuple[int, int]] = []
        self.paused = False
        self.failure: SequenceRegressed | None = None
        self.stream: Reassembly | None = None
        self.tide = Tide(now, config.start if isinstance(config.start, int) else None)
        self._backbone = backbone
        self._config = config
        self._store = store
        self._counters = counters
        self._drops = drops
        self._rng = rng
        self._kept = kept
        self._repairs = Repairs(config.repair, rng, now)
        self._joining: Joining | None = None
        self.began = 1
        self._suspect: tuple[int, bytes, float] | None = None
        self.reported_last = 0
        self._probe_at = now
        self._probed = MAX_SEQUENCE
        self._probe_interval = config.keepalive_interval
        if isinstance(config.start, int):
            self._follow(config.start)
        else:
            self._joining = Joining(config.start, config.buffer_bytes, config.repair.reorder_delay)

    @property
    def complete_up_to(self) -> int:
        """All numbers up to this one are here or given up, from the beginning on."""
        stream = self.stream
        if stream is None:
            return MAX_SEQUENCE
        return stream.missing.first - 1 if stream.missing else max(stream.highest, self.began - 1)

    def connected(self, now: float) -> None:
        """The backbone is there, for the first time or again."""
        self._probe_at = now
        self.tide.connected(now)
        if self._suspect is not None:
            self._suspect = *self._suspect[:2], now + DOUBT  # Nothing could contradict it meanwhile.
        if self._joining is not None:
            self._joining.begin(now)

    def known_up_to(self, sequence: int) -> None:
        """Numbers up to this one exist, for the store has had it: what is there need not wait for a higher one."""
        if self.stream is not None:
            self.tide.known_up_to(self.stream.next - 1)
            self.stream.exists(sequence)

    def reported(self, oldest: int, last: int) -> None:
        """The backbone says that durable journals begin at ``oldest``, 0 if there are none, and the stream ends at
        ``last``."""
        self.reported_last = last
        if self._joining is not None:
            self._joining.known(oldest, last)
        elif self.stream is not None:
            self.stream.exists(last)

    def searched(self, first: int, last: int, left: int) -> None:
        """The backbone has yet to ask ``left`` clients for ``first`` to ``last``."""
        self._repairs.searched(first, last, left)

    def asked_for(self, sequence: int, now: float) -> bool:
        """Say whether a repair of ``sequence`` is welcome."""
        # Who looks for the oldest message asks for any; once there is a stream, none leads far beyond its end.
        near = self.stream is None or sequence <= self.stream.highest + MAX_RANGE
        return near and self._repairs.was_asked(sequence, now)

    def received(self, sequence: int, data: bytes, now: float, *, live: bool) -> None:
        """Take a message in. ``live``: it came from the backbone's address."""
        if self.stream is not None:
            self._arrived(self.stream, sequence, data, now, live)
            if live:
                self._judge(self.stream, sequence, now)
        elif self._joining is not None and not self._joining.add(sequence, data, now, live=live):
            self._drops.counts["buffer_full"] += 1

    def run_received(self, first: int, data: list[bytes], now: float) -> bool:
        """Take in messages that came from the backbone with numbers from ``first`` on, if they are simply what follows.

        :return: whether they were. If not, nothing has changed, and they are to be taken in one by one.
        """
        stream, tide = self.stream, self.tide
        if stream is None or self.failure is not None or self._suspect is not None or not tide.expects(first):
            return False
        received_at = int(now * 1_000_000)
        ready = None if self.paused else stream.pass_on(first, data, received_at)
        if ready is not None:
            self.ready.append(ready)
        elif not stream.add_run(first, data, received_at):
            return False
        tide.run_came(first, first + len(data) - 1, now)
        self._probe_interval = self._config.keepalive_interval
        self._probe_at = now + self._probe_interval
        if self._config.journal:
            self._store.put(first, data, received_at)
        self._kept(first, data, now)
        return True

    def suspected(self, sequence: int, data: bytes, now: float) -> None:
        """A message came from the backbone that is too far ahead to be believed without another near it."""
        self._suspect = sequence, data, now + DOUBT

    def tick(self, now: float) -> None:
        """Decide what depends on time: what to ask for, and what to give up."""
        if self._joining is not None:
            self._join(self._joining, now)
        if self.stream is None or self.failure is not None:
            return
        if self._suspect is not None and now >= self._suspect[2]:
            self._believe(self.stream, self._suspect[0], self._suspect[1], now)
        self._repair(self.stream, now)

    def settle(self, now: float) -> None:
        """Plan repairs of what turned out to be missing, and hand over what is ready."""
        stream = self.stream
        if stream is None or self.failure is not None:
            return
        for first, last in stream.fresh_gaps:
            self._repairs.gap_found(first, last, now)
        stream.fresh_gaps.clear()
        if not self.paused:
            self.ready += stream.take()

    def next_deadline(self) -> float | None:
        """Return when :meth:`tick` may have something to do."""
        if self._joining is not None:
            return self._joining.next_deadline()
        if self.failure is not None:
            return None
        deadlines = [self._probe_at, self._repairs.next_deadline(), None if self._suspect is None else self._suspect[2]]
        return min([deadline for deadline in deadlines if deadline is not None])

    def _judge(self, stream: Reassembly, sequence: int, now: float) -> None:
        """Something else came: if it is near the suspect the stream has really jumped, and if not it has not."""
        if self._suspect is None:
            return
        suspect, data, _ = self._suspect
        if abs(sequence - suspect) <= LEAP:
            self._believe(stream, suspect, data, now)
        else:
            self._suspect = None

    def _believe(self, stream: Reassembly, suspect: int, data: bytes, now: float) -> None:
        self._suspect = None
        if suspect <= max(stream.highest, self.tide.highest) + PLAUSIBLE_JUMP:
            self._arrived(stream, suspect, data, now, True)

    def _follow(self, start: int) -> Reassembly:
        self._joining = None
        self.tide.begin(start)
        self.began = start
        self.stream = Reassembly(start, limit=self._config.buffer_bytes)
        return self.stream

    def _join(self, joining: Joining, now: float) -> None:
        asked = joining.ask(now)
        if asked is not None:
            self._ask(*asked, now)
            return
        beginning = joining.done(now)
        if beginning is not None:
            stream, confirmed = self._follow(beginning), joining.confirmed()
            stream.exists(joining.last)
            for sequence, data in sorted(joining.early.items()):
                live, ahead = sequence in joining.live, sequence - stream.highest
                if ahead <= LEAP or (live and ahead <= PLAUSIBLE_JUMP and sequence in confirmed):
                    self._arrived(stream, sequence, data, now, live)
                else:
                    self._drops.counts["implausible"] += 1
                    if live:
                        self.suspected(sequence, data, now)

    def _arrived(self, stream: Reassembly, sequence: int, data: bytes, now: float, live: bool) -> None:
        known = stream.highest
        if live:
            self.tide.came(sequence, now)
        arrival = self._add(stream, sequence, data, int(now * 1_000_000))
        if arrival is Arrival.DUPLICATE:
            self._counters.duplicates += 1
            if live and not self.paused:
                self.ready += stream.take()  # What can be handed over is not corrected, wherever a batch is cut.
            if live:
                self._compare(stream, sequence, data, now)
            return
        if live:
            self.tide.reached(sequence)
        if sequence <= known and arrival is Arrival.NEW:
            self._counters.repaired += self._repairs.arrived(sequence)
        elif sequence > known:
            self._probe_interval = self._config.keepalive_interval
            if live:
                self._probe_at = now + self._probe_interval
            else:
                # Somebody answers a tail probe, and may have more: who comes late would need hours otherwise.
                self._probe_at = now if sequence >= self._probed else now + self._config.repair.first_retry
        if arrival is Arrival.OVERFLOW:
            self._drops.counts["buffer_full"] += 1
        self._keep(sequence, data, now, live=live)
        if not live:
            self.tide.others_said(sequence)

    def _compare(self, stream: Reassembly, sequence: int, data: bytes, now: float) -> None:
        """The backbone sent what is here already: nobody knows better what it says."""
        hearsay, held = self.tide.was_hearsay(sequence), self._store.get(sequence)
        false = hearsay and held is not None and held != data
        if false:
            self._drops.counts["false_repair"] += 1
        # What waits may be forged, or the number of another that got damaged.
        if stream.correct(sequence, data, int(now * 1_000_000)) or false:
            self._keep(sequence, data, now, live=True)
            return
        self._check_regress(sequence, data, now)
        if sequence < self.began:
            self._kept(sequence, (data,), now)

    def _keep(self, sequence: int, data: bytes, now: float, *, live: bool) -> None:
        # What the backbone sent is not given up for what others say.
        if self._config.journal and (live or self._store.get(sequence) is None):
            self._store.put(sequence, (data,), int(now * 1_000_000))
        self._kept(sequence, (data,), now)

    def _add(self, stream: Reassembly, sequence: int, data: bytes, received_at: int) -> Arrival:
        if not (self.paused or stream.has_room(len(data))):
            self.ready += stream.take()
        arrival = stream.add(sequence, data, received_at)
        if arrival is Arrival.OVERFLOW and sequence in stream.missing:
            self._repairs.refused(sequence)
        return arrival

    def _check_regress(self, sequence: int, data: bytes, now: float) -> None:
        held = self._store.get(sequence)
        if held == data or (held is None and self._repairs.was_asked(sequence, now)):
            return
        if held is None and self.reported_last >= self.tide.floor > 0:
            return  # By its own account the backbone does not count anew: it repairs what was asked for long ago.
        if not (self.tide.falls(sequence) if held is None else self.tide.contradicts(sequence)):
            return
        self.failure = SequenceRegressed(
            f"backbone {self._backbone} sent message {sequence} anew after {self.tide.highest};"
            " it has lost its state file or runs twice. Stop it before more numbers are given twice"
        )

    def _repair(self, stream: Reassembly, now: float) -> None:
        deadline = self._repairs.next_deadline()
        if deadline is not None and deadline <= now:
            due = self._repairs.due(stream.missing, now, hold_from=stream.no_room_from(paused=self.paused))
            self.requests += [asked for asked in due.requests if not self._recall(stream, *asked)]
            for first, last in due.given_up:
                if self.tide.stands(now):
                    self._repairs.settled(first, last)
                    stream.give_up(first, last)
                elif not self.tide.beyond(last):
                    self._repairs.doubted(first, last, now, until=self.tide.stands_at)
                else:
                    for lost in self._repairs.certain(first, last, now):
                        stream.give_up(*lost)
        if now >= self._probe_at:
            # A tail probe: the last message of a burst may be lost with nothing after it to show the gap.
            self._probed = min(stream.highest + MAX_RANGE, MAX_SEQUENCE)
            self._ask(stream.highest + 1, self._probed, now)
            self._probe_at = now + self._probe_interval * (0.75 + 0.5 * self._rng.random())
            self._probe_interval = min(self._probe_interval * 2, SLOWEST_PROBE)

    def _recall(self, stream: Reassembly, first: int, last: int) -> bool:
        """Take what the buffer had no room for from our own memory; say whether that is all of it."""
        held = self._store.lowest(first, last, MAX_RANGE)
        for sequence in held:
            data = self._store.get(sequence)
            if data is None or sequence not in stream.missing:
                continue
            if self._add(stream, sequence, data, self._store.received_at(sequence) or 0) is Arrival.NEW:
                self._repairs.arrived(sequence)
        return len(held) == last - first + 1

    def _ask(self, first: int, last: int, now: float) -> None:
        if first <= last and self._repairs.bucket.take(1, now):
            self._repairs.note_asked(first, last, now)
            self.requests.append((first, last))
