"""Files of a node that continues from a backup."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

from fyrehose_twisted.consensus.messages import MemberId, Membership, Snapshot
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.parcels.backup import BackupReader
from fyrehose_twisted.parcels.node.ordering.event_numbering import EventNumbering, InvalidSnapshot
from fyrehose_twisted.parcels.node.ordering.history import SequencedRun
from fyrehose_twisted.parcels.node.persistent_state import StateChange
from fyrehose_twisted.parcels.node.status import format_cluster_id
from fyrehose_twisted.parcels.service.journal_history import JournalHistory, stream_uri
from fyrehose_twisted.parcels.service.state_file import StateFile
from fyrehose_twisted.parcels.service.state_keeper import STATE_NAME
from fyrehose_twisted.parcels.service.storage import STATE_FILE_NAME
from fyrehose_twisted.parcels.state_snapshot import StateSnapshot, write_snapshot

WINDOW_BYTES = 2**20
"""Memory for events that are being written."""


def restore(
    backup: BackupReader, directory: Path, name: str, address: Address, progress: Callable[[int], object]
) -> str:
    """Write the files of a node that is a new cluster alone, with the events of a backup; return its cluster id.

    Numbers continue after the last one of the backup. The cluster id is a new one, because events after the backup had
    the same numbers in the old cluster.

    :param directory: directory of the node's journal; empty or missing.
    :param address: address that the node will advertise.
    :param progress: called with numbers of events that were written.
    :raises StateFileError: if the directory is not empty, or the backup is damaged.
    :raises JournalError: if the journal cannot be written.
    """
    if directory.exists() and any(directory.iterdir()):
        raise StateFileError(f"{directory} is not empty; restore into a new directory")
    head, numbering = backup.head, EventNumbering()
    try:
        numbering.load(head.numbering)
    except InvalidSnapshot as error:
        raise StateFileError(f"the backup is damaged: {error}") from error
    staged = directory.with_name(directory.name + ".new")
    staged.mkdir(parents=True)
    try:
        cluster_id = _write(
            backup, numbering, staged, MemberId(name, SystemRandom().getrandbits(63) or 1), address, progress
        )
        if directory.exists():
            directory.rmdir()
        staged.rename(directory)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    return cluster_id


def _write(
    backup: BackupReader,
    numbering: EventNumbering,
    directory: Path,
    member: MemberId,
    address: Address,
    progress: Callable[[int], object],
) -> str:
    head = backup.head
    _restore_events(backup, directory, progress)
    numbering.cluster_id = SystemRandom().getrandbits(63) or 1
    if head.state is not None:
        snapshot = StateSnapshot(format_cluster_id(numbering.cluster_id), head.state_sequence, head.state)
        write_snapshot(directory / STATE_NAME, snapshot)
    promises = StateFile(directory / STATE_FILE_NAME, sync=True)
    try:
        promises.record_start(member)
        membership = Membership(((member, address),))
        snapshot_of_log = Snapshot(1, 1, numbering.dump(membership))
        promises.persist(StateChange(1, None, numbering.cluster_id, 1, snapshot_of_log, 0, ()))
    finally:
        promises.close()
    return format_cluster_id(numbering.cluster_id)


def _restore_events(backup: BackupReader, directory: Path, progress: Callable[[int], object]) -> None:
    head = backup.head
    journal = open_journal(directory, stream_uri(head.cluster))
    try:
        history = JournalHistory(journal, WINDOW_BYTES, time.time)
        history.clear(head.oldest - 1)
        for events in backup.events():
            history.put([SequencedRun(e.sequence, e.publisher, e.epoch, e.number, (e.data,)) for e in events])
            history.save(sync=False)
            progress(len(events))
        history.save(sync=True)
    finally:
        journal.close()
