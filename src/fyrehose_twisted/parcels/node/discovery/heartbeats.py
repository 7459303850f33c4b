"""Heartbeats to the connected nodes (document 004, "Work phase")."""

from __future__ import annotations

from fyrehose_twisted.parcels.node.discovery.links import LinkTable
from fyrehose_twisted.parcels.node.discovery.local_node import LocalNode
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.wire.messages import HEARTBEAT_INTERVAL


class Heartbeats:
    """Heartbeats of one node.

    :ivar due_at: time of the next one.
    """

    def __init__(self, local: LocalNode, links: LinkTable, output: NodeOutput, now: float) -> None:
        self.due_at = now + HEARTBEAT_INTERVAL
        self._local = local
        self._links = links
        self._output = output

    def tick(self, now: float) -> bool:
        """Send a heartbeat if one is due; return whether it was."""
        if now < self.due_at:
            return False
        self.due_at = max(self.due_at + HEARTBEAT_INTERVAL, now + HEARTBEAT_INTERVAL / 2)
        self.send()
        return True

    def send(self) -> None:
        """Send a heartbeat to each ready peer."""
        heartbeat = self._local.heartbeat()
        for target in self._links.ready_targets.values():
            if target.peer is not None:
                self._output.write(target.peer, heartbeat)
