"""How a leader brings its log to others: many entries at once, and without waiting for answers (Raft, section 5.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from fyrehose_twisted.parcels.node.persistent_state import State
from fyrehose_twisted.parcels.node.raft.log import Log
from fyrehose_twisted.parcels.wire.messages import Append, Appended, Entry, Member, Message, StatePart, StateTaken

IN_FLIGHT = 2**20
"""Bytes of entries on their way to one follower."""
APPEND_BYTES = 57_344
"""Bytes of entries in one parcel."""
STATE_PART = 49_152
"""Bytes of state in one parcel."""


class Progress:
    """How far one other node is, as the leader knows.

    :ivar next: index of the entry that it is sent next.
    :ivar match: up to where its log is the leader's.
    :ivar heard: when it answered last.
    :ivar open: whether there is a connection to it.
    :ivar blocked: whether what is written to that waits.
    :ivar told: up to where it was told that entries are committed.
    """

    __slots__ = (
        "blocked",
        "flying",
        "heard",
        "in_flight",
        "match",
        "next",
        "offset",
        "open",
        "probing",
        "state",
        "told",
    )

    def __init__(self, following: int, now: float) -> None:
        self.next = following
        self.match = 0
        self.heard = now
        self.open = False
        self.blocked = False
        self.told = 0
        self.probing = True
        self.in_flight = 0
        self.flying: deque[tuple[int, int]] = deque()
        self.state: State | None = None
        self.offset = 0

    def restart(self, following: int) -> None:
        """Send from there on, once it is known whether that fits."""
        self.next = following
        self.probing = True
        self.in_flight = 0
        self.told = 0
        self.flying.clear()
        self.state = None


class Replication:
    """What a leader knows of the others, and sends them.

    :param log: the leader's.
    :param out: where messages are put, each with who is to get it.
    :param snapshot: returns what the log came to as far as it was applied.
    :ivar term: the leader's.
    :ivar commit: up to where entries are committed.
    :ivar progress: whom it leads, members and others.
    """

    def __init__(self, log: Log, out: list[tuple[Member, Message]], snapshot: Callable[[], State]) -> None:
        self.term = 0
        self.commit = 0
        self.progress: dict[Member, Progress] = {}
        self._log = log
        self._out = out
        self._snapshot = snapshot
        self._sent: tuple[tuple[int, int, int, int], Append] | None = None
        self._open: set[Member] = set()
        self._blocked: set[Member] = set()

    def begin(self, term: int, members: Iterable[Member], now: float) -> None:
        """A leader begins: what it puts into the log next is the first that ``members`` are sent."""
        self.term = term
        self.progress = {member: self._new(member, now) for member in members}

    def end(self) -> None:
        """It leads no more."""
        self.progress = {}

    # Connections

    def opened(self, member: Member) -> None:
        """There is a connection on which requests can be sent to ``member``."""
        self._open.add(member)
        self._blocked.discard(member)
        progress = self.progress.get(member)
        if progress is not None:
            progress.open, progress.blocked = True, False
            progress.restart(progress.match + 1 if progress.match else self._log.last + 1)
            self._probe(member, progress)

    def closed(self, member: Member) -> None:
        """That connection is gone."""
        self._open.discard(member)
        progress = self.progress.get(member)
        if progress is not None:
            progress.open = False

    def blocked(self, member: Member, blocked: bool) -> None:
        """What is written to ``member`` waits, or waits no more."""
        (self._blocked.add if blocked else self._blocked.discard)(member)
        progress = self.progress.get(member)
        if progress is not None:
            progress.blocked = blocked

    # Who is led

    def lead(self, members: Iterable[Member], now: float) -> None:
        """Lead these as well."""
        for member in members:
            if member not in self.progress:
                progress = self.progress[member] = self._new(member, now)
                self._probe(member, progress)

    def match(self, member: Member) -> int:
        """Return up to where the log of ``member`` is known to be the leader's."""
        progress = self.progress.get(member)
        return 0 if progress is None else progress.match

    def _new(self, member: Member, now: float) -> Progress:
        progress = Progress(self._log.last + 1, now)
        progress.open, progress.blocked = member in self._open, member in self._blocked
        return progress

    # Answers

    def answered(self, message: Appended, sender: Member, now: float) -> bool:
        """A follower answers; returns whether it has more than before."""
        progress = self.progress.get(sender)
        if progress is None:
            return False
        progress.heard = now
        if not message.taken:
            if progress.probing or message.index >= progress.match:
                progress.restart(min(message.index, self._log.last) + 1)
            return False
        progress.probing = False
        flying = progress.flying
        while flying and flying[0][0] <= message.index:
            progress.in_flight -= flying.popleft()[1]
        if message.index <= progress.match:
            return False
        progress.match = message.index
        progress.next = max(progress.next, message.index + 1)
        return True

    def state_taken(self, message: StateTaken, sender: Member, now: float) -> None:
        """A follower has a part of the state."""
        progress = self.progress.get(sender)
        if progress is None or progress.state is None or message.index != progress.state.index:
            return
        progress.heard = now
        if message.offset >= len(progress.state.data):
            progress.match = max(progress.match, message.index)
            progress.restart(message.index + 1)
        elif message.offset != progress.offset or not message.offset:
            progress.offset = message.offset
            self._send_state(sender, progress)

    # Sending

    def flush(self) -> None:
        """Send what there is to be sent."""
        last = self._log.last
        for member, progress in self.progress.items():
            if progress.next <= last and progress.open and not progress.blocked:
                self._send(member, progress)

    def beat(self) -> None:
        """Tell everybody that the leader lives."""
        for member, progress in self.progress.items():
            if not progress.open or progress.blocked:
                continue
            if progress.state is not None:
                self._send_state(member, progress)
                continue
            if progress.probing:
                progress.flying.clear()
                progress.in_flight = 0
            self._send_append(member, progress, [])

    def tell_commit(self) -> None:
        """Tell everybody how far entries are committed who does not know."""
        for member in self.progress:
            self.urge(member)

    def urge(self, member: Member) -> None:
        """Tell ``member`` at once how far entries are committed."""
        progress = self.progress.get(member)
        if progress is not None and progress.open and progress.told < min(self.commit, progress.match):
            self._send_append(member, progress, [])

    def _probe(self, member: Member, progress: Progress) -> None:
        """Find out how far ``member`` is, if no entry is about to."""
        if progress.next > self._log.last and progress.open and not progress.blocked:
            self._send_append(member, progress, [])

    def _send(self, member: Member, progress: Progress) -> None:
        """Send entries, as many as may be on their way."""
        log = self._log
        if progress.state is not None:
            return
        if progress.next <= log.base:
            progress.state, progress.offset = self._snapshot(), 0
            self._send_state(member, progress)
            return
        if progress.probing and progress.flying:
            return
        while progress.next <= log.last and progress.in_flight < IN_FLIGHT:
            entries, size = log.after(progress.next - 1, APPEND_BYTES)
            self._send_append(member, progress, entries, size)
            if progress.probing:
                return

    def _send_append(self, member: Member, progress: Progress, entries: list[Entry], size: int = 0) -> None:
        previous = progress.next - 1
        term = self._log.term(previous)
        if term is None:
            return
        # Mostly all of them are sent the same: then it is one object, which is encoded once.
        sent, what = self._sent, (self.term, self.commit, previous, len(entries))
        if sent is None or sent[0] != what:
            sent = self._sent = what, Append(self.term, previous, term, self.commit, entries)
        self._out.append((member, sent[1]))
        progress.told = min(self.commit, previous + len(entries))
        if entries:
            progress.next += len(entries)
            progress.in_flight += size
            progress.flying.append((progress.next - 1, size))

    def _send_state(self, member: Member, progress: Progress) -> None:
        state = progress.state
        if state is not None and progress.open:
            part = state.data[progress.offset : progress.offset + STATE_PART]
            total = len(state.data)
            self._out.append((member, StatePart(self.term, state.index, state.term, progress.offset, total, part)))
