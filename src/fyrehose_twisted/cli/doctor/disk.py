"""Checks of the directories for journals and state files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from fyrehose_twisted.cli.doctor.finding import DoctorFinding, ok, unknown, warn, wrong
from fyrehose_twisted.cli.doctor.kernel import format_size
from fyrehose_twisted.cli.doctor.mounts import Mount, find_mount, read_mounts
from fyrehose_twisted.wording import pluralize

DIRECTORY, FILE_SYSTEM, FREE_SPACE, FSYNC = "directory", "file system", "disk room", "fsync"

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
LAYERED_FILE_SYSTEMS = frozenset({"overlay", "aufs"})
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)

LOW_FREE_BYTES, MIN_FREE_BYTES = 2**30, 2**20
"""Bytes. A journal compacts a full segment of 64 MiB only if twice that is free."""
LOW_FREE_FILES = 1_000

SYNCS, BLOCK = 20, 4_096
"""Number of writes, and bytes of each; each is followed by an fsync."""
SYNC_TIMEOUT = 2.0
"""Maximum seconds of the fsync measurement."""
SLOW_SYNC = 0.05


class FreeSpace(NamedTuple):
    """Free space of a file system for users other than root.

    :ivar free: free bytes.
    :ivar total: size in bytes.
    :ivar files: files that can still be created; ``None`` if there is no limit.
    """

    free: int
    total: int
    files: int | None


def nearest_existing(path: Path) -> Path:
    """Return ``path`` or its nearest existing parent; services create missing directories."""
    existing = Path(os.path.abspath(path))
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    return existing


def assess_file_system(shown: str, mount: Mount | None) -> DoctorFinding:
    """Assess the type of a file system."""
    if mount is None:
        return unknown(FILE_SYSTEM, f"no mount is known for {shown}", "check with: df -T")
    found = f"{shown} is on {mount.kind}, mounted at {mount.point}"
    if mount.kind in MEMORY_FILE_SYSTEMS:
        return warn(FILE_SYSTEM, f"{found}: memory, lost when the machine stops", "keep journals and state on a disk")
    if mount.kind in LAYERED_FILE_SYSTEMS:
        advice = "mount a volume for journals and state"
        return warn(FILE_SYSTEM, f"{found}: possibly a layer of a container, lost with it", advice)
    if mount.kind in NETWORK_FILE_SYSTEMS or mount.kind.startswith("fuse"):
        advice = "use a local disk: locks and fsync may be unreliable, and each takes a round trip"
        return warn(FILE_SYSTEM, f"{found}: provided by another machine or a program", advice)
    return ok(FILE_SYSTEM, found)


def assess_free_space(shown: str, space: FreeSpace) -> DoctorFinding:
    """Assess free space."""
    if not space.total:
        return unknown(FREE_SPACE, f"the file system of {shown} reports no size", f"check with: df {shown}")
    files = "" if space.files is None else f", and for {pluralize(space.files, 'file')}"
    found = f"{shown} has {format_size(space.free)} of {format_size(space.total)} free{files}"
    if space.free < MIN_FREE_BYTES or space.files == 0:
        return wrong(FREE_SPACE, found, "free space: a journal that cannot write ends its service")
    if space.free < LOW_FREE_BYTES:
        return warn(
            FREE_SPACE, found, "free space, or limit journals with --retention: one that cannot write ends its service"
        )
    if space.files is not None and space.files < LOW_FREE_FILES:
        return warn(FREE_SPACE, found, "remove small files: a journal creates at least one for each 64 MiB")
    return ok(FREE_SPACE, found)


def assess_fsync_latency(shown: str, seconds: Sequence[float]) -> DoctorFinding:
    """Assess measured fsync latencies."""
    middle = median(seconds)
    pace = f"{1 / middle:,.0f}" if middle > 0 else "any number of"
    found = (
        f"{shown}: median {middle * 1000:.3g} ms, longest {max(seconds) * 1000:.3g} ms of {len(seconds)};"
        f" a journal makes about {pace} groups a second durable"
    )
    if middle > SLOW_SYNC:
        advice = (
            "use a faster disk, or --fsync SECONDS, with which a power failure loses the records since the last fsync"
        )
        return warn(FSYNC, found, advice)
    return ok(FSYNC, found)


def free_space(path: Path) -> FreeSpace:
    """Return the free space. :raises OSError: if it is unavailable."""
    found = os.statvfs(path)
    files = found.f_favail if found.f_files > 0 else None  # Some file systems have no limit of files.
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, files)


def measure_fsyncs(path: Path) -> list[float]:
    """Perform the operations of a journal in a temporary directory in ``path``; return the seconds of each fsync.

    :raises OSError: if something fails.
    """
    from fyrehose_twisted.journal.format.disk import LocalDirectory

    made = tempfile.mkdtemp(prefix=".fyrehose-doctor-", dir=path)
    try:
        directory = LocalDirectory(Path(made))
        lock = directory.lock()
        file = directory.open("tried", create=True)
        try:
            seconds = list(_time_fsyncs(file))
            directory.rename("tried", "renamed")
            directory.sync()
        finally:
            file.close()
            lock.close()
        return seconds
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _time_fsyncs(file: object) -> Iterator[float]:
    from fyrehose_twisted.interfaces import IFile

    writable, began = IFile(file), perf_counter()
    for number in range(SYNCS):
        writable.write(number * BLOCK, os.urandom(BLOCK))
        before = perf_counter()
        writable.sync()
        yield perf_counter() - before
        if perf_counter() - began > SYNC_TIMEOUT:
            return


def check_directory(path: Path) -> list[DoctorFinding]:
    """Check a directory, or its nearest existing parent."""
    existing = nearest_existing(path)
    shown = str(path) if existing == Path(os.path.abspath(path)) else f"{existing} (there is no {path} yet)"
    if not existing.is_dir():
        return [wrong(DIRECTORY, f"{shown} is not a directory", "choose another with --directory, or remove the file")]
    findings = []
    try:
        seconds = measure_fsyncs(existing)
    except OSError as error:
        # Omit the name of the file, which was temporary.
        advice = "let the user of the services write there, on a file system with locks and fsync"
        findings.append(wrong(DIRECTORY, f"{shown} cannot keep a journal: {error.strerror or error}", advice))
    else:
        findings += [
            ok(DIRECTORY, f"{shown} can be written, locked and made durable"),
            assess_fsync_latency(shown, seconds),
        ]
    return [*findings, _check_file_system(existing, shown), _check_free_space(existing, shown)]


def _check_file_system(existing: Path, shown: str) -> DoctorFinding:
    try:
        return assess_file_system(shown, find_mount(Path(os.path.realpath(existing)), read_mounts()))
    except OSError as error:
        return unknown(FILE_SYSTEM, error, "check with df that it is a local disk")


def _check_free_space(existing: Path, shown: str) -> DoctorFinding:
    try:
        return assess_free_space(shown, free_space(existing))
    except OSError as error:
        return unknown(FREE_SPACE, error, f"check with: df {shown}")
