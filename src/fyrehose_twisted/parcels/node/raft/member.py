"""One order among members of which some may be gone: Raft (Ongaro and Ousterhout 2014) in memory.

What differs from the paper: a member is one *life* of a node, so that one who forgot its promises is somebody else; a
change of view becomes valid when it is committed, by the old quorum; entries hold rows of events, so that what an
event costs does not depend on messages. docs/one-order.md has the argument why P1 to P5 hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from math import inf
from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.node.persistent_state import State
from fyrehose_twisted.parcels.node.raft.log import Log
from fyrehose_twisted.parcels.node.raft.replication import Replication
from fyrehose_twisted.parcels.wire.messages import (
    BEAT,
    Append,
    Appended,
    Entry,
    EntryKind,
    Member,
    Message,
    StateTaken,
    View,
    VoteAsked,
    VoteGiven,
)

PATIENCE = (2.2, 3.6)
"""Seconds without a word from the leader after which a member asks whether it should order, drawn for each leader."""
SOON = (0.01, 0.15)
"""The same, when it is known that the leader is gone."""
AGAIN = (0.15, 0.6)
"""Seconds until a member whom too few voted for tries again."""
LEADER_PATIENCE = 3.0
"""Seconds after which a leader that hears nothing from a quorum steps down."""
FAITHFUL = 2.0
"""Seconds after a leader's last word in which no vote is given to somebody else."""
COMMIT_NOTICE = 0.005
"""Seconds for which followers may wait to be told that something is committed, if there is nothing else to tell."""


class Role(Enum):
    """What part a node has in the order."""

    FOLLOWER = "follower"
    ASKING = "asking"
    """Asks whether it would be voted for."""
    CANDIDATE = "candidate"
    LEADER = "leader"


class Order:
    """One node's part in the order. Everything that it wants sent is in :attr:`out`, what is committed in
    :attr:`ready`; whoever drains it calls :meth:`flush` before.

    :param me: this life of this node.
    :param log: what it knows of the log.
    :param snapshot: returns what the log came to as far as it was applied.
    :ivar members: who votes, as committed.
    :ivar leader: who orders, as far as known.
    :ivar dirty: whether there is something to be made durable.
    :ivar fresh_from: index from which on entries are not durable; 0 if they are.
    """

    def __init__(
        self, me: Member, rng: Random, now: float, log: Log, snapshot: Callable[[], State], *, term: int = 0
    ) -> None:
        self.me = me
        self.log = log
        self.term = term
        self.vote: Member | None = None
        self.role = Role.FOLLOWER
        self.leader: Member | None = None
        self._view: View | None = None
        self.members: frozenset[Member] = frozenset()
        self.commit = log.base
        self.out: list[tuple[Member, Message]] = []
        self.ready: list[tuple[int, Entry]] = []
        self.dirty = False
        self.fresh_from = 0
        self.replication = Replication(log, self.out, snapshot)
        self.elections = 0
        self._rng = rng
        self._heard = -inf
        self._gone = False
        self._votes: set[Member] = set()
        self._patience = rng.uniform(*PATIENCE)
        self._act_at = now + self._patience
        self._notice_at = inf
        self._answers: dict[Member, Appended] = {}
        self._changing = 0
        self._opened = 0

    # Facts

    @property
    def view(self) -> View | None:
        """Who votes, as committed; ``None`` before that is known."""
        return self._view

    @view.setter
    def view(self, view: View) -> None:
        self._view = view
        self.members = frozenset(member for member, _ in view.members)

    @property
    def votes(self) -> bool:
        """Whether this node is a member."""
        return self.me in self.members

    @property
    def leads(self) -> bool:
        """Whether this node orders."""
        return self.role is Role.LEADER

    @property
    def settled(self) -> bool:
        """Whether this node orders, and something of its own term is committed, so that it knows all that is."""
        return self.leads and self.commit >= self._opened

    @property
    def changing(self) -> bool:
        """Whether a change of view is on its way."""
        return self._changing > self.commit

    def heard_of_leader(self, now: float) -> float:
        """Return the seconds since this node knew of a working leader; of a leader, since a quorum answered."""
        if not self.leads:
            return now - self._heard
        view = self.view
        if view is None:
            return inf
        progress = self.replication.progress
        times = sorted((now - progress[one].heard if one in progress else inf) for one in self._others())
        return 0.0 if view.quorum == 1 else times[view.quorum - 2]

    def next_deadline(self) -> float:
        """When :meth:`tick` wants to be called."""
        return min(self._act_at, self._notice_at)

    def _others(self) -> list[Member]:
        return [] if self.view is None else [one for one, _ in self.view.members if one != self.me]

    # Commands

    def begin_at(self, index: int, term: int, view: View | None) -> None:
        """What the log up to ``index`` came to is known as state; entries may follow."""
        self.log.reset(index, term)
        self.commit = self.replication.commit = index
        self.ready.clear()
        self.fresh_from = 0
        if view is not None:
            self.view = view

    def resume(self, commit: int) -> None:
        """Entries up to ``commit`` were committed in an earlier run of this node."""
        self._commit(min(commit, self.log.last))

    def found(self, address: Address, now: float, term: int = 1) -> None:
        """Begin a cluster of one, or form one anew with what this node has."""
        self._enter(term)
        self.view = View(((self.me, address),))
        self.vote = self.me
        self._lead(now, View(((self.me, address),)))

    def propose(self, entry: Entry) -> int:
        """Put an entry into the log of the leader, and return its index."""
        self._append([entry])
        return self.log.last

    def change_view(self, view: View) -> None:
        """Let the members agree on a view that differs by one. Only for a leader that is :attr:`settled`, and one at a
        time."""
        self._changing = self.propose(Entry(self.term, EntryKind.VIEW, view))

    def leader_gone(self, now: float) -> None:
        """The leader is known to be dead: do not wait for it."""
        if self.leads or self._gone:
            return
        self._gone = True
        self.leader = None
        self._act_at = min(self._act_at, now + self._rng.uniform(*SOON))

    def leave(self, now: float) -> None:
        """Lead no more."""
        if self.leads:
            self._follow(None, now)

    # What happens

    def tick(self, now: float) -> None:
        """A deadline has passed."""
        if now >= self._notice_at:
            self._notice_at = inf
            self.replication.tell_commit()
        if now < self._act_at:
            return
        if self.leads:
            if self.heard_of_leader(now) > LEADER_PATIENCE:
                self._follow(None, now)
                return
            self._act_at = now + BEAT
            self.replication.beat()
        elif self.votes:
            self._ask(now)
        else:
            self._act_at = now + self._rng.uniform(*PATIENCE)

    def vote_asked(self, message: VoteAsked, sender: Member, now: float) -> None:
        """Somebody wants to lead."""
        log = self.log
        current = (message.last_term, message.last_index) >= (log.last_term, log.last)
        loyal = self.leads or (not self._gone and now - self._heard < FAITHFUL and self.leader not in (None, sender))
        if message.trial:
            granted = message.term > self.term and current and not loyal
            self.out.append((sender, VoteGiven(message.term if granted else self.term, granted, True)))
            return
        if message.term > self.term and not loyal:
            self._enter(message.term)
            self._follow(None, now)
        granted = message.term == self.term and current and not loyal and self.vote in (None, sender)
        if granted and self.vote is None:
            self.vote = sender
            self.dirty = True
        if granted:
            self._act_at = now + self._rng.uniform(*PATIENCE)
        self.out.append((sender, VoteGiven(self.term, granted, False)))

    def vote_given(self, message: VoteGiven, sender: Member, now: float) -> None:
        """Somebody answers whether it votes for this node."""
        if not message.granted:
            if message.term > self.term:
                self._enter(message.term)
                self._follow(None, now)
            return
        if message.trial:
            if self.role is not Role.ASKING or message.term != self.term + 1:
                return
        elif self.role is not Role.CANDIDATE or message.term != self.term:
            return
        self._votes.add(sender)
        self._count(now)

    def append_received(self, message: Append, sender: Member, now: float) -> bool:
        """Entries from the leader; returns whether it is one."""
        if message.term < self.term:
            self._answers[sender] = Appended(self.term, False, self.log.last)
            return False
        if self.leads and message.term == self.term:
            return False  # There are not two leaders of one term; somebody lies.
        self._obey(message.term, sender, now)
        log, previous = self.log, message.previous
        entries = message.entries
        if previous < log.base:
            # What is only known as state was committed, and is equal.
            skip = log.base - previous
            entries = entries[skip:]
            previous = log.base
            if len(message.entries) < skip:
                self._answers[sender] = Appended(self.term, True, message.previous + len(message.entries))
                return True
        elif log.term(previous) != message.previous_term:
            hint = min(log.last, previous - 1)
            while hint > self.commit and log.term(hint) != message.previous_term:
                hint -= 1
            self._answers[sender] = Appended(self.term, False, max(hint, self.commit))
            return True
        last = previous + len(entries)
        for offset, entry in enumerate(entries):
            index = previous + 1 + offset
            known = log.term(index)
            if known == entry.term:
                continue
            if known is not None:
                log.cut(index)
                self._fresh(index)
            self._append(entries[offset:])
            break
        self._answers[sender] = Appended(self.term, True, last)
        self._commit(min(message.commit, last))
        return True

    def appended_received(self, message: Appended, sender: Member, now: float) -> bool:
        """A follower answers; returns whether anything follows from that."""
        if self._outdated(message.term, now):
            return True
        if not self.leads or message.term != self.term:
            return False
        if not self.replication.answered(message, sender, now):
            return not message.taken
        if message.index > self.commit:
            before = self.commit
            self._advance(now)
            return self.commit != before or message.index < self.log.last
        if self._notice_at == inf:
            self._notice_at = now + COMMIT_NOTICE
        return message.index < self.log.last

    def state_taken(self, message: StateTaken, sender: Member, now: float) -> None:
        """A follower has a part of the state."""
        if not self._outdated(message.term, now) and self.leads:
            self.replication.state_taken(message, sender, now)

    def state_offered(self, term: int, sender: Member, now: float) -> bool:
        """The leader sends state; returns whether it is one."""
        if term < self.term or (self.leads and term == self.term):
            return False
        self._obey(term, sender, now)
        return True

    # Doing

    def flush(self, now: float) -> None:
        """Send what there is to be sent."""
        if self.leads:
            if self.view is not None and self.view.quorum == 1:
                self._advance(now)
            self.replication.flush()
        if self._answers:
            for member, answer in self._answers.items():
                self.out.append((member, answer))
            self._answers.clear()

    def _append(self, entries: Iterable[Entry]) -> None:
        entries = list(entries)
        self._fresh(self.log.last + 1)
        self.log.append(entries)
        for entry in entries:
            if entry.kind is EntryKind.VIEW:
                self._changing = self.log.last

    def _fresh(self, index: int) -> None:
        self.dirty = True
        self.fresh_from = index if not self.fresh_from else min(self.fresh_from, index)

    def _advance(self, now: float) -> None:
        """Commit what enough members have."""
        match = self.replication.match
        while self.view is not None:
            indexes = sorted((self.log.last if one == self.me else match(one) for one, _ in self.view.members))
            index = indexes[len(indexes) - self.view.quorum]
            if index <= self.commit or self.log.term(index) != self.term:
                return
            if self.commit < self._changing < index:
                index = self._changing  # What is behind it is for the new view to commit.
            before = self.view
            self._commit(index)
            if self.view is not before:
                self._view_changed(now)
            elif self._notice_at == inf:
                self._notice_at = now + COMMIT_NOTICE

    def _commit(self, index: int) -> None:
        for at in range(self.commit + 1, index + 1):
            entry = self.log.entry(at)
            if isinstance(entry.content, View):
                self.view = entry.content
                self.dirty = True
            self.ready.append((at, entry))
        self.commit = self.replication.commit = max(self.commit, index)

    def _view_changed(self, now: float) -> None:
        if not self.votes:
            self._follow(None, now)
            return
        self.replication.lead(self._others(), now)
        self.replication.tell_commit()

    # Elections

    def _enter(self, term: int) -> None:
        self.term = term
        self.vote = None
        self.dirty = True

    def _obey(self, term: int, leader: Member, now: float) -> None:
        if term > self.term:
            self._enter(term)
        if self.role is not Role.FOLLOWER or self.leader != leader:
            self._follow(leader, now)
        self._heard = now
        self._gone = False
        self._act_at = now + self._patience

    def _outdated(self, term: int, now: float) -> bool:
        if term > self.term:
            self._enter(term)
            self._follow(None, now)
            return True
        return False

    def _follow(self, leader: Member | None, now: float) -> None:
        if self.leads:
            self._heard = now - self.heard_of_leader(now)
        self.role = Role.FOLLOWER
        self.leader = leader
        self.replication.end()
        self._notice_at = inf
        self._votes.clear()
        self._patience = self._rng.uniform(*PATIENCE)
        self._act_at = now + self._patience

    def _ask(self, now: float) -> None:
        """Ask whether others would vote for this node."""
        self.role = Role.ASKING
        self.leader = None
        self._votes = {self.me}
        self._act_at = now + self._rng.uniform(*AGAIN)
        self._ask_for_votes(self.term + 1, trial=True)
        self._count(now)

    def _count(self, now: float) -> None:
        view = self.view
        if view is None or len([one for one, _ in view.members if one in self._votes]) < view.quorum:
            return
        if self.role is Role.CANDIDATE:
            self._lead(now, None)
            return
        self._enter(self.term + 1)
        self.elections += 1
        self.vote = self.me
        self.role = Role.CANDIDATE
        self._votes = {self.me}
        self._act_at = now + self._rng.uniform(*AGAIN)
        self._ask_for_votes(self.term, trial=False)
        self._count(now)

    def _ask_for_votes(self, term: int, *, trial: bool) -> None:
        ask = VoteAsked(term, self.log.last, self.log.last_term, trial)
        self.out.extend((member, ask) for member in self._others())

    def _lead(self, now: float, founded: View | None) -> None:
        self.role = Role.LEADER
        self.leader = self.me
        self._gone = False
        self._answers.clear()
        changed = self.log.last_view(self.commit)
        self._changing = 0 if changed is None else changed[0]
        self.replication.begin(self.term, self._others(), now)
        kind = EntryKind.NOTHING if founded is None else EntryKind.VIEW
        self._opened = self.propose(Entry(self.term, kind, founded))
        self._act_at = now + BEAT
        self._advance(now)
