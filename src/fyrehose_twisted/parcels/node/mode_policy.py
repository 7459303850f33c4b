"""How a node stands with the others: what it is at, and what that follows from."""

from __future__ import annotations

from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.discovery import Discovery
from fyrehose_twisted.parcels.node.modes import Modes
from fyrehose_twisted.parcels.node.neighbours import Said, show
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.raft.member import Order
from fyrehose_twisted.parcels.wire.messages import MAX_SEQUENCE, SILENCE, Mode

_SAID = {
    Said.REFUSED: "is not listened on",
    Said.ALONE: "is in no cluster either",
    Said.NO: "refuses this node",
}


class Standing:
    """Looks at the parts of a node, and says what happened to it.

    :ivar largest: the largest sequence number that a peer named which speaks only the document.
    :ivar largest_ours: the largest that a node of ours named.
    """

    def __init__(
        self, config: NodeConfig, order: Order, discovery: Discovery, delivery: Delivery, modes: Modes
    ) -> None:
        self.largest = 0
        self.largest_ours = 0
        self._config = config
        self._order = order
        self._discovery = discovery
        self._delivery = delivery
        self._modes = modes

    def sequence_answered(self, sequence: int, ours: bool) -> None:
        """Somebody said up to where it has events (document 004, "Sequence recovery phase")."""
        if ours:
            self.largest_ours = max(self.largest_ours, sequence)
        else:
            # Numbers go on from there; whoever claims the last ones would end them.
            self.largest = max(self.largest, min(sequence, MAX_SEQUENCE // 2))

    def may_found(self) -> bool:
        """Whether to begin a cluster: nobody whom the operator named is in one, or may be in one and is just silent."""
        targets = self._discovery.configured
        said = {target.said for target in targets}
        if self._delivery.replica.founding or not said <= {Said.REFUSED, Said.DOCUMENT, Said.ALONE}:
            return False
        if any(target.asks_sequence for target in targets) or self._delivery.last:
            return False  # Who has events was in a cluster before, and does not remember it.
        return self._config.found or not targets or said == {Said.DOCUMENT}

    def waits_for(self) -> str:
        """Say why there is no cluster yet."""
        if self._delivery.last and self._config.found:
            return (
                f"it has events up to {self._delivery.last:,} but no promises, so there was a cluster that it does not"
                " remember; let it join that, or form it anew"
            )
        waits = [
            f"{show(target.address)} {_SAID.get(target.said, 'does not answer')}"
            for target in self._discovery.configured
            if target.said not in (Said.DOCUMENT, Said.CLUSTER)
        ]
        return f"it looks for a cluster: {', '.join(waits[:8])}" if waits else "it looks for a cluster"

    def lost_quorum(self, now: float) -> str | None:
        """Say how many this node misses, if it is out of touch with a quorum."""
        if self._modes.mode not in (Mode.WRK, Mode.SEQ_RECOVERY):
            return None
        if min(self._order.heard_of_leader(now), now - self._modes.since) <= SILENCE:
            return None
        view = self._order.view
        quorum = "a quorum" if view is None else f"a quorum ({view.quorum} of {len(view.members)} members)"
        return f"it is not in touch with {quorum}"

    def news(self) -> tuple[str, str] | None:
        """Return what happened of :class:`~fyrehose_twisted.parcels.node.modes.Phases`, if something did, and why."""
        order, delivery, mode = self._order, self._delivery, self._modes.mode
        if mode is Mode.WRK:
            if not order.votes or delivery.backfill is not None:
                return "fell_behind", "the others went on without it"
        elif mode is Mode.SEQ_RECOVERY:
            leads = order.settled if order.leads else order.leader is not None
            if order.votes and leads and delivery.backfill is None and delivery.replica.sequence >= self.largest_ours:
                return "caught_up", "it has what the others have"
        elif mode is Mode.DSC:
            if delivery.replica.founding:
                return "answered", "somebody of the cluster answered, or it remembers that there is one"
        elif mode is Mode.ERR and order.leader is not None:
            return "answered", "it is in touch with a quorum again"
        return None
