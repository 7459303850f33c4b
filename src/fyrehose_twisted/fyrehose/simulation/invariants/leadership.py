"""Invariant of the availability of a group of backbones."""

from __future__ import annotations

from typing import ClassVar

from fyrehose_twisted.consensus.messages import Membership
from fyrehose_twisted.fyrehose.simulation.invariants.delivery import ClientInvariant
from fyrehose_twisted.fyrehose.simulation.member_hosts import Group
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.observer import BegunFault

UNAVAILABLE_FOR = 15.0
"""Seconds in which a majority that runs and is connected must agree on a leader that numbers messages.

A silent connection is closed after 3 s. A dial takes up to 5 s and is repeated after 0.5 s. An election takes up to
1.3 s and may fail a few times. A restarted leader waits 2 s for its clients.
"""


class LeaderElected(ClientInvariant):
    """A majority of members that run and are connected has a leader that numbers messages.

    :ivar longest: longest time in seconds that such a majority had none.
    """

    name: ClassVar[str] = "a majority has a leader"

    participants: Group

    def __init__(self, participants: Group) -> None:
        super().__init__(participants)
        self.longest = 0.0
        self._disturbed_until = {member.host: 0.0 for member in participants.members}
        self._led_at = 0.0

    def fault_began(self, fault: BegunFault) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        names = set(fault.host_names())
        others = {host.name for host in self.network.hosts.values() if host not in self._disturbed_until}
        for host in self._disturbed_until:
            # A link fault between members and clients does not concern the links between members.
            if host.name in names or not names - others:
                self._disturb(host, fault.ends_at - fault.at)

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._disturb(host, 0.0)

    def stopped(self, host: Host, description: str) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._disturb(host, 0.0)

    def resumed(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        self._disturb(host, 0.0)

    def sample(self) -> None:
        """See :class:`~fyrehose_twisted.sim.invariants.Invariant`."""
        now = self.network.elapsed
        if self.participants.leader is not None:
            self._led_at = now
            return
        connected_since = self._majority_since()
        if connected_since is None:
            return
        leaderless = now - max(self._led_at, connected_since)
        self.longest = max(self.longest, leaderless)
        if leaderless > UNAVAILABLE_FOR:
            self.violated(f"no member has numbered messages for {leaderless:.1f} s, although a majority is connected")

    def _disturb(self, host: Host, duration: float) -> None:
        if host in self._disturbed_until:
            self._disturbed_until[host] = max(self._disturbed_until[host], self.network.elapsed + duration)

    def _majority_since(self) -> float | None:
        """Return the time since which a majority has run without a fault, or ``None``."""
        membership = self._membership()
        if membership is None:
            return max(self._disturbed_until.values()) if all(host.running for host in self._disturbed_until) else None
        voters = {voter for voter, _ in membership.members}
        since = [
            (self._disturbed_until[member.host], member.member_config.witness)
            for member in self.participants.members
            if member.host.running and member.node.raft.me in voters
        ]
        quorum = len(voters) // 2 + 1
        for time, _ in sorted(since):
            whole = [witness for other, witness in since if other <= time]
            if len(whole) >= quorum and not all(whole):
                return time
        return None

    def _membership(self) -> Membership | None:
        """Return the latest membership that a member knows of."""
        members = [one.node.raft for one in self.participants.members if one.host.up]
        latest = max(members, key=lambda raft: raft.commit_index, default=None)
        return None if latest is None else latest.membership
