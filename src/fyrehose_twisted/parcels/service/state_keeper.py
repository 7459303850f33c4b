"""The application's state of a node, and the file with its snapshots."""

from __future__ import annotations

from pathlib import Path

from twisted.logger import Logger

from fyrehose_twisted.errors import StateFileError, StateUnavailable
from fyrehose_twisted.interfaces import IReplicatedState
from fyrehose_twisted.parcels.node.node import ClusterNode
from fyrehose_twisted.parcels.node.status import format_cluster_id
from fyrehose_twisted.parcels.state_snapshot import SNAPSHOT_EVENTS, StateSnapshot, read_snapshot, write_snapshot

STATE_NAME = "state"
"""Name of the file in the directory of the journal."""


class StateKeeper:
    """The application's state of one node.

    :param state: the application's object.
    :param directory: directory of the journal; ``None`` if the node has none, and takes the state from other nodes.
    """

    log = Logger()

    def __init__(self, state: IReplicatedState, directory: Path | None) -> None:
        self.state = state
        self._path = None if directory is None else directory / STATE_NAME
        self._saved = 0
        self._saved_cluster_id = ""

    def load(self, cluster_id: int) -> int:
        """Restore the stored snapshot; return the number of the last event that it contains, 0 without one.

        :param cluster_id: id of the cluster that the node was in; 0 for none.
        :raises StateFileError: if the file cannot be read, or the application cannot restore it.
        """
        found = None if self._path is None else read_snapshot(self._path)
        if found is None:
            return 0
        if found.cluster_id != format_cluster_id(cluster_id):
            self.log.warn(
                "{path} is ignored: it belongs to cluster id {found}, and not to {ours}",
                path=self._path,
                found=found.cluster_id,
                ours=format_cluster_id(cluster_id) or "none",
            )
            return 0
        try:
            self.state.restore(found.data)
        except Exception as error:
            raise StateFileError(
                f"{self._path}: the state cannot be restored: {type(error).__name__}: {error}"
            ) from error
        self._saved, self._saved_cluster_id = found.sequence, found.cluster_id
        self.log.info("the state contains the events up to {sequence:,}", sequence=found.sequence)
        return found.sequence

    def take(self, node: ClusterNode) -> StateSnapshot:
        """Return the state. :raises StateUnavailable: if it is not complete, or has failed."""
        application = node.components.application_state
        if not application.failure and not application.is_complete:
            raise StateUnavailable("behind", f"the state contains the events up to {application.sequence:,} so far")
        data = None if application.failure else application.snapshot()
        if data is None:
            raise StateUnavailable("state-failed", application.failure)
        return StateSnapshot(format_cluster_id(node.cluster_id), application.sequence, data)

    def save(self, node: ClusterNode, *, always: bool = False) -> None:
        """Store a snapshot if one is due.

        :param always: store one unless the last one is the same.
        :raises StateFileError: if it cannot be written.
        """
        application = node.components.application_state
        if self._path is None or not application.is_complete or not node.cluster_id:
            return
        cluster_id, since = format_cluster_id(node.cluster_id), application.sequence - self._saved
        if cluster_id != self._saved_cluster_id or since >= SNAPSHOT_EVENTS or (always and since):
            data = application.snapshot()
            if data is not None:
                write_snapshot(self._path, StateSnapshot(cluster_id, application.sequence, data))
                self._saved, self._saved_cluster_id = application.sequence, cluster_id
