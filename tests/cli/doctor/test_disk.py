from __future__ import annotations

import os
from errno import ENOLCK, ENOSPC
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.cli.doctor import disk, mounts
from fyrehose_twisted.cli.doctor.disk import (
    FreeSpace,
    assess_file_system,
    assess_free_space,
    assess_fsync_latency,
    check_directory,
    nearest_existing,
)
from fyrehose_twisted.cli.doctor.finding import DoctorFinding, Level
from fyrehose_twisted.cli.doctor.mounts import Mount, find_mount, parse_mounts
from fyrehose_twisted.journal.format.disk import LocalDirectory, LocalFile

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 25 0:27 / /data rw,relatime shared:2 master:1 - xfs /dev/vdb rw
31 25 0:28 / /data/with\040space rw - nfs4 host:/x rw
32 25 0:29 / /data rw,relatime - tmpfs none rw
torn line
33 25 0:30 / /torn rw -  none rw
""".lstrip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/database", "ext4"),
        ("/proc/self", "proc"),
        ("/data/with space/x", "nfs4"),
        ("/data/with", "tmpfs"),
        ("/data", "tmpfs"),
    ],
)
def test_the_latest_mount_with_the_longest_path_is_found(path: str, kind: str) -> None:
    mount = find_mount(Path(path), parse_mounts(MOUNTS))
    assert mount is not None
    assert mount.kind == kind


def test_malformed_lines_of_the_mount_table_are_skipped() -> None:
    assert [str(mount.point) for mount in parse_mounts(MOUNTS)] == ["/proc", "/", "/data", "/data/with space", "/data"]


@pytest.mark.parametrize(
    ("kind", "level", "said"),
    [
        ("ext4", Level.OK, "lies on ext4, mounted at /x"),
        ("tmpfs", Level.WARN, "lost when the machine stops"),
        ("devtmpfs", Level.WARN, "lost when the machine stops"),
        ("overlay", Level.WARN, "container layer"),
        ("nfs4", Level.WARN, "network or user-space file system"),
        ("fuse.sshfs", Level.WARN, "network or user-space file system"),
    ],
)
def test_file_systems_are_assessed_by_type(kind: str, level: Level, said: str) -> None:
    found = assess_file_system("kept", Mount(Path("/x"), kind))
    assert found.level == level
    assert said in found.found


def test_a_file_system_missing_from_the_mount_table_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert assess_file_system("kept", find_mount(Path("/x"), [])).found.startswith("cannot be known: ")
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "none")
    assert "cannot be known" in _by_name(check_directory(tmp_path))["file system"].found


@pytest.mark.parametrize(
    ("room", "level", "said"),
    [
        (FreeSpace(2**36, 2**40, None), Level.OK, "64 GiB of 1 TiB free"),
        (FreeSpace(2**36, 2**40, 10**6), Level.OK, "and for 1,000,000 files"),
        (FreeSpace(2**29, 2**40, None), Level.WARN, "512 MiB"),
        (FreeSpace(2**36, 2**40, 999), Level.WARN, "for 999 files"),
        (FreeSpace(2**19, 2**40, None), Level.WRONG, "512 KiB"),
        (FreeSpace(2**36, 2**40, 0), Level.WRONG, "for 0 files"),
        (FreeSpace(0, 0, None), Level.WARN, "cannot be known"),
    ],
)
def test_free_disk_space_is_assessed(room: FreeSpace, level: Level, said: str) -> None:
    found = assess_free_space("kept", room)
    assert found.level == level
    assert said in found.found


@pytest.mark.parametrize(
    ("seconds", "level", "said"),
    [
        ([0.001, 0.002, 0.5], Level.OK, "median 2 ms, longest 500 ms of 3; a journal makes about 500 groups a second"),
        ([0.06, 0.06, 0.001], Level.WARN, "about 17 groups a second"),
        ([0.0], Level.OK, "about any number of groups"),
    ],
)
def test_fsync_latencies_are_assessed(seconds: list[float], level: Level, said: str) -> None:
    found = assess_fsync_latency("kept", seconds)
    assert found.level == level
    assert said in found.found


def test_a_missing_directory_is_checked_at_its_nearest_parent(tmp_path: Path) -> None:
    assert nearest_existing(tmp_path / "a" / "b") == tmp_path
    found = _by_name(check_directory(tmp_path / "a" / "b"))["directory"]
    assert found.level == Level.OK
    assert found.found.startswith(f"{tmp_path} (there is no {tmp_path / 'a' / 'b'} yet) can be written")


@pytest.mark.parametrize("name", ["file", "file/inside", "dangling", "dangling/inside"])
def test_a_path_that_is_no_directory_is_wrong(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    (found,) = check_directory(tmp_path / name)
    assert found.level == Level.WRONG
    assert "is not a directory" in found.found


def test_checking_a_directory_leaves_no_files(tmp_path: Path) -> None:
    found = _by_name(check_directory(tmp_path))
    assert list(found) == ["directory", "fsync", "file system", "disk room"]
    assert found["directory"].level == Level.OK
    assert "groups a second" in found["fsync"].found
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("target", "name", "error"), [(LocalDirectory, "lock", ENOLCK), (LocalFile, "sync", ENOSPC)], ids=["lock", "sync"]
)
def test_a_directory_without_locks_or_fsync_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: type, name: str, error: int
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(target, name, fail)
    found = _by_name(check_directory(tmp_path))
    assert list(found) == ["directory", "file system", "disk room"]
    assert found["directory"].level == Level.WRONG
    assert os.strerror(error) in found["directory"].found
    assert os.listdir(tmp_path) == []


def test_the_fsync_probe_of_a_fast_disk_takes_many_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "perf_counter", lambda: 0.0)
    assert "longest 0 ms of 20;" in _by_name(check_directory(tmp_path))["fsync"].found


def test_the_fsync_probe_of_a_slow_disk_stops_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(1000))
    monkeypatch.setattr(disk, "perf_counter", lambda: float(next(times)))
    found = _by_name(check_directory(tmp_path))["fsync"]
    assert found.level == Level.WARN
    assert "median 1e+03 ms, longest 1e+03 ms of 1;" in found.found


def _by_name(findings: list[DoctorFinding]) -> dict[str, DoctorFinding]:
    return {finding.check: finding for finding in findings}
