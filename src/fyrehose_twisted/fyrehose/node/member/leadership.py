"""What a member does while it leads: it keeps its lease, has the bound extended, and hands over."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.consensus.lease import LeaderLease
from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.node.backbone.authority import NumberingAuthority
from fyrehose_twisted.fyrehose.node.backbone.group_backbone import GroupBackbone
from fyrehose_twisted.fyrehose.node.member.config import MemberConfig
from fyrehose_twisted.fyrehose.node.member.peers import PeerLinks
from fyrehose_twisted.fyrehose.wire.member_messages import LeaseRound, NumberBounds

KEPT_INTERVAL = 0.005
"""Minimum number of seconds between two extensions of the number up to which messages are kept."""

FIRST_ROUND_INTERVAL = 0.02
"""Seconds between two rounds of a leader that has no lease."""

MAX_SEAMS = 8
"""Number of seams that a group remembers."""

TRANSFER_TIMEOUT = 1.0
"""Seconds after which a transfer of leadership that did not succeed is given up."""


class Leadership:
    """Terms of one member as leader.

    :param bounds: what the log granted before this process.
    :ivar bounds: what the latest committed entry grants.
    :ivar kept_interval: minimum number of seconds between two extensions of the number up to which messages are kept.
    """

    def __init__(
        self,
        config: MemberConfig,
        raft: RaftMember,
        links: PeerLinks,
        backbone: GroupBackbone,
        authority: NumberingAuthority,
        bounds: NumberBounds,
        now: float,
    ) -> None:
        self.bounds = bounds
        self.lease = LeaderLease(config.lease)
        self._config = config
        self._raft = raft
        self._links = links
        self._backbone = backbone
        self._authority = authority
        self._term = 0
        self._round_at = inf
        self._proposed = bounds
        self._first_number: int | None = None
        """First number of this member's term, until its backbone leads."""
        self._kept_due_at = now
        self.kept_interval = KEPT_INTERVAL
        self._starts_exact = False
        self._wait_until = now
        """Time at which the lease of a former leader ends at the latest, if the proof of its death is wrong."""
        self._is_death_noted = False
        self.handed_over_at = self._handing_over_at = -inf
        self._transfer: tuple[MemberId, float, int] | None = None
        """Next leader, deadline, and index of the entry that must be committed before."""

    def update(self, now: float) -> None:
        """Begin, continue or end a term."""
        raft = self._raft
        if self._round_at < inf and not (raft.is_leader and raft.term == self._term):
            self._resign()
        if not raft.is_leader:
            return
        if self._round_at == inf:
            self._begin_term(now)
        if self._transfer is not None:
            self._continue_transfer(now)
            return
        assert raft.membership is not None, "a leader knows its group"
        extended = self.lease.until(raft.membership, raft.me)
        if extended > self._authority.lease_until:
            self._authority.lease_until = extended
            self._backbone.authority_changed(now)
        if self._first_number is not None and self._authority.room(self._first_number - 1, now):
            first, self._first_number = self._first_number, None
            self._backbone.lead(
                first, now, exact=self._starts_exact, wait_until=self._wait_until, reserve=self._config.reserve
            )
        self._extend_bounds(now)

    def leader_died(self) -> None:
        """Note that the leader is known to be dead."""
        self._is_death_noted = True

    def leader_heard(self) -> None:
        """Note that another member leads."""
        self._is_death_noted = False

    def start_round(self, now: float) -> None:
        """Ask the other members for the next promise, if it is time."""
        if now < self._round_at:
            return
        number = self.lease.start_round(now)
        holds_lease = now < self._authority.lease_until
        self._round_at = now + (self._config.round_interval if holds_lease else FIRST_ROUND_INTERVAL)
        for member in self._links.connected:
            self._links.send(member, LeaseRound(self._raft.term, number, self._backbone.last_given))

    def committed(self, entry: LogEntry, now: float) -> None:
        """Apply a committed entry: use what it grants, if this member proposed it in its term."""
        bounds: NumberBounds = entry.content
        kept = bounds.kept > self._authority.kept
        self.bounds = bounds
        self._authority.kept, self._authority.given, self._authority.seams = bounds.kept, bounds.given, bounds.seams
        if entry.term == self._term == self._raft.term and self._raft.is_leader and self._transfer is None:
            self._authority.bound = bounds.bound
            self._backbone.authority_changed(now, kept=kept)

    @property
    def is_extension_due(self) -> bool:
        """Whether more may have to be proposed."""
        backbone = self._backbone
        if self._round_at == inf:
            return False
        return (
            backbone.sequencer.bound > self._proposed.bound
            or backbone.has_progress
            or backbone.seam_to_record is not None
        )

    def next_deadline(self) -> float:
        """Return the time at which :meth:`update` or :meth:`start_round` is due."""
        deadline = self._round_at
        if self._transfer is not None:
            deadline = min(deadline, self._transfer[1])
        if self._may_extend and self._kept_wanted > self._proposed.kept:
            deadline = min(deadline, self._kept_due_at)
        return deadline

    # Transfer

    def transfer(self, name: str | None, now: float) -> str:
        """Hand over to another member; return its name.

        :param name: the next leader; by default the one whose log is most complete.
        :raises OperationalError: if this member does not lead, or the other one cannot.
        """
        raft = self._raft
        if not raft.is_leader:
            leader = "no member leads" if raft.leader is None else f"{raft.leader.name} leads"
            raise OperationalError(f"{self._config.name} cannot hand over: {leader}")
        if self._first_number is not None or self._backbone.takes_over:
            raise OperationalError(f"{self._config.name} cannot hand over: it is taking over itself; try again")
        if self._transfer is not None:
            return self._transfer[0].name
        candidates = [
            member
            for member, data in (() if raft.membership is None else raft.membership.members)
            if member != raft.me and not data.witness and member in self._links.connected
        ]
        named = [member for member in candidates if name in (None, member.name)]
        if not named:
            names = ", ".join(sorted(one.name for one in candidates)) or "none"
            refused = "no member can" if name is None else f"{name} cannot"
            raise OperationalError(f"{refused} lead next; connected members that can: {names}")
        target = max(named, key=self._completeness)
        # From here on this member gives no number, so the next leader may begin right after the last one.
        self._authority.revoke()
        self.lease.give_up()
        last = self._backbone.sequencer.last
        self._propose(self._proposed._replace(bound=last, given=last, exact=True))
        self._transfer = target, now + TRANSFER_TIMEOUT, raft.log.last_index
        self._handing_over_at = now
        return target.name

    def _completeness(self, member: MemberId) -> tuple[int, MemberId]:
        progress = self._raft.replication.progress.get(member)
        return 0 if progress is None else progress.match_index, member

    def _continue_transfer(self, now: float) -> None:
        assert self._transfer is not None, "leadership is being handed over"
        target, deadline, index = self._transfer
        if now >= deadline:
            # The bound was not committed. The order to succeed was not given, but it is simplest to start over.
            self._raft.step_down(now)
            self._resign()
        elif self._raft.commit_index >= index:
            self._raft.transfer(target, now)

    # Terms

    def _begin_term(self, now: float) -> None:
        self._round_at, self._term = now, self._raft.term
        self.lease.reset()
        self._authority.revoke()
        latest, log = self.bounds, self._raft.log
        for entry in log.entries_from(log.snapshot_index + 1):
            if entry.kind is EntryKind.DATA:
                latest = entry.content  # Committed or not: this term's first entry commits all before it.
        self._first_number = latest.bound + 1
        self._proposed = latest._replace(exact=False)
        self._starts_exact = latest.exact
        self._wait_until = now + self._config.timers.stickiness if self._is_death_noted else now
        self._is_death_noted = False

    def _resign(self) -> None:
        handed_over = self._transfer is not None and self._raft.commit_index >= self._transfer[2]
        self._round_at, self._first_number, self._transfer = inf, None, None
        self.lease.reset()
        self._authority.revoke()
        if handed_over:
            self.handed_over_at = self._handing_over_at
        self._backbone.stand_by(handed_over=handed_over)

    def _extend_bounds(self, now: float) -> None:
        """Propose a higher bound ahead of need, and a higher number up to which messages are kept."""
        if not self._may_extend:
            return
        wanted, kept, given, _, seams = self._proposed
        if self._first_number is not None:
            wanted = max(wanted, self._first_number - 1 + self._config.reserve)
        else:
            wanted = max(wanted, self._backbone.sequencer.bound)
        if now >= self._kept_due_at and self._kept_wanted > kept:
            kept = self._kept_wanted
            self._kept_due_at = now + self.kept_interval
        seam = self._backbone.seam_to_record
        if seam is not None and seam not in seams:
            seams = (*seams, seam)[-MAX_SEAMS:]
        if (wanted, kept, given, False, seams) != self._proposed:
            self._propose(NumberBounds(wanted, kept, max(given, self._backbone.last_given), False, seams))

    def _propose(self, bounds: NumberBounds) -> None:
        self._proposed = bounds
        self._raft.propose(LogEntry(self._raft.term, EntryKind.DATA, bounds))

    @property
    def _may_extend(self) -> bool:
        """Whether this member leads, does not hand over, and belongs to the only group that its peers can form."""
        has_majority = 2 * len(self._raft.members) > len(self._config.peers) + 1
        return self._raft.is_leader and self._transfer is None and has_majority

    @property
    def _kept_wanted(self) -> int:
        return self._backbone.highest_durable
