"""Mode changes of a node and their consequences: bootstrapping a cluster, losing its quorum, stopping."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.errors import LocalError
from fyrehose_twisted.parcels.events import ModeChanged, NodeEvent
from fyrehose_twisted.parcels.node.bootstrapping import ClusterBootstrap
from fyrehose_twisted.parcels.node.discovery.heartbeats import Heartbeats
from fyrehose_twisted.parcels.node.discovery.links import LinkTable
from fyrehose_twisted.parcels.node.mode_policy import ModePolicy
from fyrehose_twisted.parcels.node.modes import ModeMachine
from fyrehose_twisted.parcels.node.ordering.publish_tracker import PublishTracker
from fyrehose_twisted.parcels.wire.messages import Mode

LEAVE_TIMEOUT = 1.0
"""Seconds that a leaving node waits for the others to remove it."""


class Lifecycle:
    """Mode changes of one node.

    :param events: list to which events for the application are appended.
    :ivar leave_deadline: time at which a leaving node stops.
    """

    def __init__(
        self,
        modes: ModeMachine,
        policy: ModePolicy,
        cluster_bootstrap: ClusterBootstrap,
        raft: RaftMember,
        tracker: PublishTracker,
        links: LinkTable,
        heartbeats: Heartbeats,
        events: list[NodeEvent],
    ) -> None:
        self.leave_deadline = inf
        self._modes = modes
        self._policy = policy
        self._cluster_bootstrap = cluster_bootstrap
        self._raft = raft
        self._tracker = tracker
        self._links = links
        self._heartbeats = heartbeats
        self._events = events

    @property
    def has_stopped(self) -> bool:
        """Whether the node has stopped and has nothing more to send."""
        return self._modes.is_final and self.leave_deadline == inf

    # Commands

    def leave(self, now: float, reason: str = "it was asked to stop") -> None:
        """Leave the cluster and stop."""
        if self._modes.is_final:
            return
        self._fire("left", reason, now)
        self._tracker.abandon_all("this node stops")
        self._heartbeats.send()
        self._raft.step_down(now)
        self.leave_deadline = now + LEAVE_TIMEOUT if self._links.ready_targets else now

    def panic(self, reason: str, now: float) -> None:
        """Stop at once, because the state cannot be persisted any more."""
        self._fire("broke", reason, now)
        self._tracker.abandon_all(reason)

    def reform(self, now: float) -> None:
        """Bootstrap a new cluster with this node alone and its log.

        :raises LocalError: if the node has a quorum or has stopped.
        """
        mode = self._modes.mode
        if mode is Mode.WRK or self._modes.is_final:
            raise LocalError(f"node {self._raft.me.name!r} is in mode {mode.value}: it has a quorum, or has stopped")
        self._links.close_all(now)
        self._bootstrap(now, "the operator forced a new cluster,")

    # Rules

    def bootstrap_if_alone(self, now: float) -> bool:
        """Bootstrap a cluster if no other node can have one; return whether it was bootstrapped."""
        if not self._policy.may_bootstrap():
            return False
        self._bootstrap(now, "it bootstrapped the cluster")
        return True

    def check(self, now: float) -> None:
        """Check for a quorum, and bootstrap a cluster if none exists."""
        if self._modes.mode is Mode.DSC and not self.bootstrap_if_alone(now):
            self._modes.reason = self._policy.waiting_reason()
        lost = self._policy.quorum_loss_reason(now)
        if lost is not None:
            self._fire("lost_quorum", lost, now)
            self._tracker.abandon_all(lost)

    def follow_policy(self, now: float) -> None:
        """Make the mode change that is due, if any."""
        due = self._policy.next_event()
        if due is not None:
            name, reason = due
            self._fire(name, reason, now)
            if name == "fell_behind":
                self._tracker.abandon_all(f"this node fell behind: {reason}")

    def tick(self, now: float) -> bool:
        """Stop a node that is to have left by now; return whether it stopped."""
        if now < self.leave_deadline:
            return False
        self.leave_deadline = inf
        self._links.close_all(now)
        return True

    def _bootstrap(self, now: float, reason: str) -> None:
        cluster_id = self._cluster_bootstrap.bootstrap(now)
        self._fire("bootstrapped", f"{reason} {cluster_id:016x}", now)

    def _fire(self, name: str, reason: str, now: float) -> None:
        if self._modes.fire(name, reason, now):
            self._events.append(ModeChanged(self._modes.mode, reason))
            self._heartbeats.send()
