"""Journal on a full file system: it stops with a report, and resumes when there is space."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from integration.running.backbone import RunningBackbone
from integration.running.journal import Check, RunningJournal, StartJournal
from integration.running.programs import Start, wait_until

pytestmark = pytest.mark.extended

SIZE = 2 * 2**20


class SmallDisk:
    """A file system of SIZE bytes in a mount namespace of its own.

    :ivar path: its path for other processes, too.
    """

    def __init__(self, start: Start, mount_point: Path) -> None:
        mount_point.mkdir()
        self._mount_point = mount_point
        # The namespace exists while this process reads its input.
        script = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec cat'
        self._holder = start(
            "unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", SIZE, mount_point, of_ours=False
        )
        self._holder.wait_for("mounted")
        self.path = Path(f"/proc/{self._holder.process.pid}/root{mount_point}")

    def resize(self, size: int) -> None:
        command = ["mount", "-o", f"remount,size={size}", str(self._mount_point)]
        subprocess.run(["nsenter", "-t", str(self._holder.process.pid), "-m", *command], check=True, timeout=120)


@pytest.fixture
def small_disk(start: Start, tmp_path: Path, program: Callable[[str, str], Path]) -> SmallDisk:
    program("unshare", "util-linux")
    program("nsenter", "util-linux")
    mounting = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    tried = subprocess.run(mounting, capture_output=True, text=True, timeout=120)
    if tried.returncode:
        why = tried.stderr.strip().splitlines()[-1:]
        pytest.skip(f"as user {os.geteuid()}, file systems cannot be mounted here, which needs root: {why}")
    return SmallDisk(start, tmp_path / "small")


def publish(start: Start, backbone: RunningBackbone, first: int, last: int) -> None:
    lines = b"".join(b"%0*d\n" % (1_000, number) for number in range(first, last + 1))
    publisher = start("fyrehose", "pub", "-b", backbone.text)
    assert publisher.finish(lines) == 0, publisher


def stopped_for_want_of_room(journal: RunningJournal) -> None:
    assert journal.program.process.wait(120) == 1, journal.program
    assert journal.program.finish() == 1
    out = journal.program.out
    said = (
        f"stopping: {journal.path} cannot be written: No space left on device; free disk space or reduce --retention\n"
    )
    assert out.count("stopping: ") == 1, out
    assert said in out
    assert "Traceback" not in out
    assert "Unhandled" not in out


def test_full_disk_stops_the_journal_until_space_is_free(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal, check: Check, small_disk: SmallDisk
) -> None:
    whole = start_journal(backbone, "whole")
    small = start_journal(backbone, small_disk.path)
    backbone.wait_for_clients(2)
    publish(start, backbone, 1, 100)
    small.wait_for(100)
    publish(start, backbone, 101, 3_000)
    stopped_for_want_of_room(small)
    check(small)
    seen = small.bounds()
    digest = small.digest()
    assert 100 < seen.next <= 3_000

    small_disk.resize(4 * SIZE)
    small.start()
    publish(start, backbone, 3_001, 3_100)
    last = backbone.sequence
    for journal in (small, whole):
        journal.wait_for(last)
        journal.stop()
        check(journal)
    assert small.digest(1, seen.next - 1) == digest
    assert small.digest() == whole.digest()
    assert len(small.records()) == last


def test_shorter_retention_frees_a_full_disk(
    start: Start, backbone: RunningBackbone, start_journal: StartJournal, check: Check, small_disk: SmallDisk
) -> None:
    whole = start_journal(backbone, "whole")
    small = start_journal(backbone, small_disk.path)
    backbone.wait_for_clients(2)
    publish(start, backbone, 1, 1_500)
    small.wait_for(1_500)
    publish(start, backbone, 1_501, 2_500)
    stopped_for_want_of_room(small)
    small.start("--retention", "500kB")
    # Retention runs once a second. Until then there has to be room for 500 kB and all that is missing.
    small.wait_for(2_500)
    wait_until(lambda: small.bounds().first > 2_000, lambda: f"{small.bounds()} take more than 500 kB")
    publish(start, backbone, 2_501, 2_600)
    last = backbone.sequence
    for journal in (small, whole):
        journal.wait_for(last)
        journal.stop()
        check(journal)
    kept = small.bounds()
    assert 1 < kept.first < kept.next == last + 1
    assert small.digest() == whole.digest(kept.first)
