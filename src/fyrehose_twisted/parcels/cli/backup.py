"""``fyrehose parcels backup`` and ``restore``: a cluster in one file, and a new one from it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fyrehose_twisted.errors import EventsNotHeld, StateFileError
from fyrehose_twisted.net.addresses import parse_address
from fyrehose_twisted.parcels.backup import BackupReader, BackupWriter, unpack_events, unpack_head
from fyrehose_twisted.parcels.client.failover import NodeRequest
from fyrehose_twisted.parcels.client.http_client import ParcelsClient
from fyrehose_twisted.parcels.client.sse_client import InvalidResponse
from fyrehose_twisted.parcels.service.restoring import restore
from fyrehose_twisted.parcels.wire.messages import MAX_STATE_BYTES
from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.process.terminal import print_output


async def back_up(options: argparse.Namespace, client: ParcelsClient) -> int:
    """Run the command and return its exit status.

    :raises EventsNotHeld: if the node drops events before they are in the backup.
    """
    path = Path(options.file)
    written = path.with_name(path.name + ".new")
    request = NodeRequest("GET", "/backup", max_bytes=2 * MAX_STATE_BYTES)
    try:
        head = unpack_head((await client.nodes.request(request)).body)
        with written.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            writer = BackupWriter(file, head)
            with ProgressBar(total=head.last - head.oldest + 1, unit=" events") as progress:
                while (first := head.oldest + writer.count) <= head.last:
                    page = NodeRequest("GET", f"/backup/events?from={first}", first=first)
                    events = unpack_events((await client.nodes.request(page)).body)[: head.last - first + 1]
                    if not events or events[0].sequence != first:
                        raise EventsNotHeld(first, head.oldest, head.last)
                    writer.write(events)
                    progress.update(len(events))
            writer.end()
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    except ValueError as error:
        raise InvalidResponse(f"a node sent a backup in an unknown format: {error}") from error
    finally:
        written.unlink(missing_ok=True)
    held = "without a state" if head.state is None else f"state after event {head.state_sequence:,}"
    print_output(
        f"{path}: cluster {head.cluster}, id {head.cluster_id}, {writer.count:,} events up to {head.last:,}, {held}"
    )
    return 0


async def restore_backup(options: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    :raises StateFileError: if the file is no complete backup, or the directory is not empty.
    """
    path, directory = Path(options.file), Path(options.directory)
    address = parse_address(options.advertise)
    try:
        with path.open("rb") as file:
            backup = BackupReader(file)
            head = backup.head
            with ProgressBar(total=head.last - head.oldest + 1, unit=" events") as progress:
                cluster_id = restore(backup, directory, options.name, address, progress.update)
    except OSError as error:
        raise StateFileError(f"{error.filename or path}: {error.strerror}") from error
    print_output(
        f"{directory}: node {options.name} of cluster {head.cluster}, new id {cluster_id}, events up to {head.last:,}\n"
        f"Start it with --journal {directory} --name {options.name} --cluster {head.cluster}, and the others with empty"
        " directories."
    )
    return 0
