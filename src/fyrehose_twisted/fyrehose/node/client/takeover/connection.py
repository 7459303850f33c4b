"""Connection of a client with the backbones of its stream."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.fyrehose.events import ClientCounters, Connected, Disconnected, KeepaliveAcked, LeaderChanged
from fyrehose_twisted.fyrehose.node.base import NodeOutput
from fyrehose_twisted.fyrehose.node.client.keepalive import CONNECT_INTERVAL, KeepaliveSession
from fyrehose_twisted.fyrehose.node.client.takeover.backbone_group import BackboneGroup, ReportOutcome
from fyrehose_twisted.fyrehose.node.drop_log import DropLog
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Asked, Depth, Group, Head, Leader, Status


class Connection:
    """Connection of a client: KEEPALIVEs to all backbones, and the choice of the one that leads.

    :param on_connected: called when the leader answers for the first time, or again.
    :param on_leader_changed: called with the time when another member leads, or in another term, and with whether it
        has taken over.
    :param drops: counters of dropped packets.
    :param drop: counts a dropped packet and reports it.
    :ivar group: the backbones.
    """

    def __init__(
        self,
        group: BackboneGroup,
        keepalive: KeepaliveSession,
        counters: ClientCounters,
        output: NodeOutput,
        drops: DropLog,
        drop: Callable[[str, Address, str, float], None],
        *,
        on_connected: Callable[[float], None],
        on_leader_changed: Callable[[float, bool], None],
    ) -> None:
        self.group = group
        self._keepalive = keepalive
        self._counters = counters
        self._output = output
        self._drops = drops
        self._drop = drop
        self._on_connected = on_connected
        self._on_leader_changed = on_leader_changed
        self._answered_term = 0
        self._hurried_at = -inf
        self._has_left = False
        self._dismissed: set[Address] = set()
        """Backbones that were told not to deliver, since the leader answers."""

    @property
    def keepalive_due_at(self) -> float | None:
        """Time of the next KEEPALIVE; ``None`` after the client has left."""
        return None if self._has_left else self._keepalive.due_at

    def tick(self, now: float) -> None:
        """Send due KEEPALIVEs and detect that the leader is silent."""
        if now >= self._keepalive.due_at and not self._has_left:
            served_by = (self.group.leader,) if self._has_chosen else self.group.addresses
            self._output.effects.append(Send([self._keepalive.next_keepalive(now)], served_by))
        if self._keepalive.connected and self._keepalive.timed_out(now):
            self._keepalive.disconnect()
            self.group.forget_term()
            self._answered_term = 0
            self._dismissed.clear()
            self._output.events.append(Disconnected())

    def leave(self, now: float) -> None:
        """Send a last KEEPALIVE if the dialect has flags."""
        self._has_left = True
        farewell = self._keepalive.goodbye(now)
        if farewell is not None and self._keepalive.connected:
            self._output.effects.append(Send([farewell], self.group.addresses))

    def accepts(self, report: Status | Asked | Depth | Group, peer: Address, now: float) -> bool:
        """Return whether ``report`` comes from the backbone that leads; drop it if not."""
        if self._keepalive.is_recent_token(report.token) and self._follows(peer, now):
            return True
        self._drop_stray("stray_extension", type(report).__name__.upper(), report.token, peer, now)
        return False

    def ack_received(self, token: bytes, peer: Address, now: float) -> None:
        """Handle a KEEPALIVE-ACK."""
        keepalive = self._keepalive
        follows = peer == self.group.leader or (keepalive.is_recent_token(token) and self._follows(peer, now))
        if not follows and self._has_chosen and keepalive.is_recent_token(token):
            self._dismiss(peer, now)
        round_trip = keepalive.acked(token, now) if follows else None
        if round_trip is None:
            self._drop_stray("stray_ack", "KEEPALIVE-ACK", token, peer, now)
            return
        self._output.events.append(KeepaliveAcked(round_trip))
        if not keepalive.connected:
            keepalive.connected = True
            self._on_connected(now)
            self._output.events.append(Connected())

    def leader_received(self, report: Leader, peer: Address, highest: int, now: float) -> None:
        """Handle a LEADER of any member, and answer it with a HEAD if it asks for one.

        :param highest: highest number that the client holds.
        """
        group, keepalive = self.group, self._keepalive
        if peer not in group or not keepalive.is_recent_token(report.token):
            self._drop("stray_extension", peer, "LEADER without a matching request", now)
            return
        known, term = group.addresses, group.term
        outcome = group.leader_reported(report, peer)
        if group.addresses != known and not self._has_left:
            keepalive.due_at = now  # The new members do not know this client.
        if outcome is ReportOutcome.OUTDATED:
            self._drops.counts["former_leader"] += 1
            return
        if outcome is ReportOutcome.CHANGED:
            keepalive.leader_changed(now)
            self._counters.leader_changes += bool(term)
            self._on_leader_changed(now, bool(term))
            self._output.events.append(LeaderChanged(group.term, group.leader))
        if report.asks_head:
            self._send_head(report, highest, now)

    def drop_unasked(self, sequence: int, peer: Address, now: float) -> None:
        """Drop a DELIVER that is neither new nor a requested repair.

        A member that does not lead, as far as is known, may have taken over, so all are asked at once.
        """
        if peer not in self.group:
            self._drop("unasked_repair", peer, f"DELIVER {sequence} that was not requested", now)
            return
        self._drops.counts["former_leader"] += 1
        if peer != self.group.leader and not self._has_left and now >= self._hurried_at + CONNECT_INTERVAL:
            self._hurried_at = now
            self._keepalive.due_at = min(self._keepalive.due_at, now)

    def drop_foreign(self, reason: str, peer: Address, detail: str, now: float) -> None:
        """Drop a packet that only the leader may send."""
        if peer in self.group and peer != self.group.leader:
            self._drops.counts["former_leader"] += 1
        else:
            self._drop(reason, peer, detail, now)

    @property
    def _has_chosen(self) -> bool:
        """Whether this client follows one of several backbones that number the stream at the same time, or relay it.

        Of those that take over from one another, only the leader answers, and tells its term.
        """
        keepalive = self._keepalive
        return keepalive.connected and keepalive.extensions_supported and not self.group.term

    def _dismiss(self, peer: Address, now: float) -> None:
        """Have another backbone stop its deliveries. If that is lost, it stops when it hears nothing more."""
        if peer in self.group and peer not in self._dismissed and not self._has_left:
            self._dismissed.add(peer)
            farewell = self._keepalive.goodbye(now)
            if farewell is not None:
                self._output.effects.append(Send([farewell], (peer,)))

    def _follows(self, peer: Address, now: float) -> bool:
        """Return whether to follow ``peer``, which has answered as only leaders do.

        Before a member has reported the leader, the first one that answers is the leader.
        """
        group = self.group
        if peer != group.leader and peer in group and not (group.term or self._keepalive.connected):
            group.leader = peer
            self._on_leader_changed(now, False)
        return peer == group.leader

    def _drop_stray(self, reason: str, name: str, token: bytes, peer: Address, now: float) -> None:
        detail = f"{name} without a matching request"
        if self._keepalive.is_recent_token(token):
            self.drop_foreign(reason, peer, detail, now)
        else:
            self._drop(reason, peer, detail, now)

    def _send_head(self, report: Leader, highest: int, now: float) -> None:
        datagrams, token = [], report.token
        if report.term > self._answered_term and not self._has_left:
            # Without a new KEEPALIVE, the leader might have received a later one than it had when it asked.
            self._answered_term = report.term
            datagrams.append(self._keepalive.next_keepalive(now))
            token = self._keepalive.token
        datagrams.append(encode(Head(token, report.term, highest)))
        self._output.effects.append(Send(datagrams, (self.group.leader,)))
