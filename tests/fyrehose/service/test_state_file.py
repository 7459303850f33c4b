from __future__ import annotations

import errno
import mmap
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient, SequenceCheckpoint
from fyrehose_twisted.fyrehose.service.state_file import PAGE, SequenceFile
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE, Dialect
from fyrehose_twisted.process import boot_id as boot
from fyrehose_twisted.process.locked_file import lock

STREAM = "fyrehose://default"
BOOT, OTHER_BOOT = b"a" * 16, b"b" * 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fyrehose.state"


def start(path: Path, *, boot_id: bytes = BOOT, **options: Any) -> SequenceFile:
    return SequenceFile(path, STREAM, boot_id=boot_id, **options)


def left_by(path: Path, mark: SequenceCheckpoint | None, *, clean: bool = False) -> Path:
    """Write the file of a backbone that was killed after ``mark``, or closed cleanly."""
    original = path.with_name("original")
    file = start(original)
    if mark is not None:
        file.persist(mark)
    if clean:
        file.close()
    # Stores to a mapped file survive a kill of the process.
    shutil.copy(original, path)
    if not clean:
        file.close()
    return path


def numbers(file: SequenceFile) -> tuple[int, int, tuple[int, int] | None]:
    """Return last number, bound and gap."""
    return file.last, file.bound, file.hole


def refusal(path: Path, **options: Any) -> str:
    """Return why a file is refused; ``check`` must agree, and neither may change it or keep the lock."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StateFileError) as opened:
        start(path, **options)
    boot_id = options.pop("boot_id", BOOT)
    if before is not None:
        with pytest.raises(StateFileError) as checked:
            SequenceFile.check(path, STREAM, boot_id=boot_id, **options)
        assert str(checked.value) == str(opened.value)
        assert path.read_bytes() == before
        descriptor = os.open(path, os.O_RDONLY)
        lock(descriptor, path, "another")
        os.close(descriptor)
    assert str(path) in str(opened.value)
    return str(opened.value)


class TestCreation:
    def test_a_new_sequence_file_is_fresh(self, path: Path) -> None:
        file = start(path)
        assert numbers(file) == (0, 0, None)
        assert file.fresh
        file.close()

    def test_a_sequence_file_is_two_pages_with_mode_0600(self, path: Path) -> None:
        start(path).close()
        assert path.stat().st_size == 2 * PAGE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(path.parent.iterdir()) == [path]

    def test_a_sequence_file_is_complete_and_synced_before_it_is_linked(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[int] = []
        contents: list[bytes] = []
        link, fsync = os.link, os.fsync

        def watched_link(source: str, target: Path) -> None:
            assert synced == [Path(source).stat().st_ino]
            contents.append(Path(source).read_bytes())
            link(source, target)

        def watched_fsync(descriptor: int) -> None:
            synced.append(os.fstat(descriptor).st_ino)
            fsync(descriptor)

        monkeypatch.setattr(os, "link", watched_link)
        monkeypatch.setattr(os, "fsync", watched_fsync)
        start(path).close()
        assert [page[:PAGE] for page in contents] == [path.read_bytes()[:PAGE]]
        assert synced[1:] == [path.parent.stat().st_ino]

    @pytest.mark.parametrize("call", ["fsync", "link"])
    def test_a_failed_creation_leaves_no_file(self, path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, call, full)
        with pytest.raises(StateFileError, match=r"cannot be created: No space left"):
            start(path)
        assert list(path.parent.iterdir()) == []

    def test_a_leftover_temporary_file_does_not_prevent_a_start(self, path: Path) -> None:
        path.with_name(f"{path.name}.{os.getpid()}.new").write_bytes(b"half")
        start(path).close()

    def test_a_sequence_file_created_concurrently_is_not_overwritten(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        theirs = left_by(path.with_name("theirs"), SequenceCheckpoint(7, 9))
        link = os.link

        def late_link(source: str, target: Path) -> None:
            shutil.copy(theirs, target)
            link(source, target)

        monkeypatch.setattr(os, "link", late_link)
        file = start(path)
        assert numbers(file) == (7, 9, None)
        file.close()


class TestRestart:
    def test_after_sigkill_numbering_continues_with_the_next_number(self, path: Path) -> None:
        program = f"""
import os, signal
from pathlib import Path
from fyrehose_twisted.fyrehose.node.backbone.sequencer import SequenceCheckpoint
from fyrehose_twisted.fyrehose.service.state_file import SequenceFile
file = SequenceFile(Path({str(path)!r}), {STREAM!r}, boot_id={BOOT!r})
file.persist(SequenceCheckpoint(1, 5_000))
file.persist(SequenceCheckpoint(4_711, 5_000))
os.kill(os.getpid(), signal.SIGKILL)
"""
        killed = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
        assert killed.returncode == -signal.SIGKILL
        file = start(path)
        assert numbers(file) == (4_711, 5_000, None)
        assert not file.fresh
        file.close()

    def test_each_persisted_number_survives_a_kill(self, path: Path) -> None:
        for last in range(1, 20):
            left_by(path, SequenceCheckpoint(last, 100 + last))
            file = start(path)
            assert numbers(file) == (last, 100 + last, None)
            file.close()

    def test_after_a_power_failure_numbering_continues_at_the_bound_and_reports_the_gap(self, path: Path) -> None:
        file = start(left_by(path, SequenceCheckpoint(10, 1_034)), boot_id=OTHER_BOOT)
        assert numbers(file) == (1_034, 1_034, (11, 1_034))
        assert not file.fresh
        file.close()

    def test_a_second_power_failure_without_new_numbers_leaves_no_second_gap(self, path: Path) -> None:
        left_by(path, SequenceCheckpoint(10, 1_034))
        first = start(path, boot_id=OTHER_BOOT)
        again = path.with_name("again")
        shutil.copy(path, again)
        first.close()
        file = start(again, boot_id=b"c" * 16)
        assert numbers(file) == (1_034, 1_034, None)
        file.close()

    def test_after_a_power_failure_the_new_boot_id_is_stored(self, path: Path) -> None:
        file = start(left_by(path, SequenceCheckpoint(10, 1_034)), boot_id=OTHER_BOOT)
        file.persist(SequenceCheckpoint(1_035, 2_000))
        shutil.copy(path, path.with_name("killed"))
        killed = start(path.with_name("killed"), boot_id=OTHER_BOOT)
        assert numbers(killed) == (1_035, 2_000, None)
        killed.close()
        file.close()

    @pytest.mark.parametrize("boot_id", [BOOT, OTHER_BOOT])
    def test_a_clean_close_leaves_no_gap(self, path: Path, boot_id: bytes) -> None:
        file = start(left_by(path, SequenceCheckpoint(10, 1_034), clean=True), boot_id=boot_id)
        assert numbers(file) == (10, 10, None)
        assert not file.fresh
        file.close()

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("boot_id", [BOOT, OTHER_BOOT])
    def test_a_sequence_file_without_assigned_numbers_is_still_fresh(
        self, path: Path, boot_id: bytes, clean: bool
    ) -> None:
        file = start(left_by(path, None, clean=clean), boot_id=boot_id)
        assert numbers(file) == (0, 0, None)
        assert file.fresh
        file.close()

    def test_the_maximum_sequence_number_survives_a_kill(self, path: Path) -> None:
        file = start(left_by(path, SequenceCheckpoint(MAX_SEQUENCE, MAX_SEQUENCE)))
        assert numbers(file) == (MAX_SEQUENCE, MAX_SEQUENCE, None)
        file.close()

    def test_a_sequence_file_with_only_its_bound_on_disk_is_not_fresh(self, path: Path) -> None:
        file = start(path)
        file.persist(SequenceCheckpoint(1, 1_025))
        page = bytearray(path.read_bytes())
        file.close()
        page[16:24] = bytes(8)  # Only the bound was on disk, not the last number.
        path.write_bytes(page)
        again = start(path, boot_id=OTHER_BOOT)
        assert (numbers(again), again.fresh) == ((1_025, 1_025, (1, 1_025)), False)
        again.close()


class TestClients:
    ALICE = KnownClient(("192.0.2.7", 4_001), ("192.0.2.7", 4_001), 0, Dialect.V2, 3, 1e9)

    def mark(self, last: int, client: KnownClient | None = ALICE) -> SequenceCheckpoint:
        return SequenceCheckpoint(last, last + 100, ((self.ALICE.address, client),))

    def test_after_a_kill_the_client_table_is_complete(self, path: Path) -> None:
        file = start(left_by(path, self.mark(1)))
        assert (file.clients, file.complete) == ((self.ALICE,), True)
        file.persist(self.mark(2, None))
        assert file.clients == ()
        file.close()

    @pytest.mark.parametrize("boot_id", [BOOT, OTHER_BOOT])
    def test_after_a_clean_close_the_client_table_is_complete(self, path: Path, boot_id: bytes) -> None:
        file = start(left_by(path, self.mark(1), clean=True), boot_id=boot_id)
        assert (file.clients, file.complete) == ((self.ALICE,), True)
        file.close()

    def test_after_a_power_failure_the_client_table_is_incomplete(self, path: Path) -> None:
        file = start(left_by(path, self.mark(1)), boot_id=OTHER_BOOT)
        assert (file.clients, file.complete) == ((self.ALICE,), False)
        file.close()

    @pytest.mark.parametrize("start_at", [None, 50])
    def test_a_new_sequence_file_has_an_incomplete_client_table(self, path: Path, start_at: int | None) -> None:
        file = start(path, start_at=start_at)
        assert (file.clients, file.complete) == ((), False)
        file.close()

    def test_a_sequence_file_without_a_client_table_gets_one(self, path: Path) -> None:
        left_by(path, SequenceCheckpoint(10, 1_034))
        path.write_bytes(path.read_bytes()[:PAGE])
        file = start(path)
        assert (numbers(file), file.clients, file.complete) == ((10, 1_034, None), (), False)
        file.persist(self.mark(11))
        file.close()
        again = start(path)
        assert (again.clients, again.complete) == ((self.ALICE,), True)
        again.close()

    def test_growing_the_client_table_on_a_full_disk_is_an_error(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        start(path).close()
        file = start(path)
        monkeypatch.setattr(os, "posix_fallocate", full)
        clients = [self.ALICE._replace(address=("192.0.2.7", port)) for port in range(1, 100)]
        with pytest.raises(StateFileError, match="cannot be made longer: No space left"):
            file.persist(SequenceCheckpoint(1, 2, tuple((client.address, client) for client in clients)))
        monkeypatch.undo()
        file.close()


class TestBoot:
    def test_the_boot_id_is_read_from_the_kernel(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        told = path.with_name("boot_id")
        monkeypatch.setattr(boot, "_BOOT_ID_PATH", told)
        told.write_text("11111111-2222-3333-4444-555555555555\n")
        file = SequenceFile(path, STREAM)
        file.persist(SequenceCheckpoint(1, 9))
        shutil.copy(path, path.with_name("killed"))
        told.write_text("99999999-2222-3333-4444-555555555555\n")
        after = SequenceFile(path.with_name("killed"), STREAM)
        assert after.hole == (2, 9)
        after.close()
        file.close()


def replaced(offset: int, content: bytes) -> Callable[[bytes], bytes]:
    return lambda page: page[:offset] + content + page[offset + len(content) :]


class TestDamage:
    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (lambda page: b"", "it is empty"),
            (lambda page: page[: PAGE - 1], "not written by a backbone (4095 bytes)"),
            (lambda page: page[:8], "not written by a backbone (8 bytes)"),
            (lambda page: page + b"\0", "not written by a backbone"),
            (lambda page: bytes(PAGE), "not written by a backbone"),
            (lambda page: b"#!/bin/sh\n" * 410, "not written by a backbone"),
            (replaced(7, b"\x02"), "another version or byte order"),
            (lambda page: page[:8] + page[15:7:-1] + page[16:], "another version or byte order"),
            (replaced(16, struct.pack("=Q", 2_000)), "damaged (last number 2000, bound 1034)"),
            (replaced(24, struct.pack("=Q", 2**48)), f"damaged (last number 10, bound {2**48})"),
            (replaced(PAGE - 4, b"\0\0\0\0"), "checksum is wrong"),
            (replaced(60, b"X"), "checksum is wrong"),
        ],
        ids=[
            "empty",
            "a byte short",
            "header only",
            "a byte long",
            "zeros",
            "a script",
            "version",
            "byte order",
            "last over bound",
            "bound over the last number of all",
            "checksum",
            "name",
        ],
    )
    def test_a_damaged_sequence_file_is_refused_with_advice(
        self, path: Path, damage: Callable[[bytes], bytes], said: str
    ) -> None:
        left_by(path, SequenceCheckpoint(10, 1_034))
        path.write_bytes(damage(path.read_bytes()))
        refused = refusal(path)
        assert said in refused
        assert "--start-at N" in refused

    def test_a_sequence_file_of_another_stream_is_refused_with_both_names(self, path: Path) -> None:
        SequenceFile(path, "fyrehose://other").close()
        assert refusal(path).endswith("it belongs to fyrehose://other, not to fyrehose://default")

    def test_any_damaged_constant_byte_of_a_sequence_file_is_refused(self, path: Path) -> None:
        page = left_by(path, SequenceCheckpoint(10, 1_034)).read_bytes()
        for offset in [*range(16), *range(48, 100), *range(100, PAGE, 97), *range(PAGE - 4, PAGE)]:
            path.write_bytes(page[:offset] + bytes([page[offset] ^ 1]) + page[offset + 1 :])
            with pytest.raises(StateFileError):
                SequenceFile.check(path, STREAM, boot_id=BOOT)

    def test_start_at_does_not_accept_a_damaged_file(self, path: Path) -> None:
        path.write_bytes(b"")
        assert "empty" in refusal(path, start_at=99)


class TestLock:
    def test_two_backbones_cannot_share_a_file(self, path: Path) -> None:
        file = start(path)
        before = path.read_bytes()
        for other in (start, lambda path: SequenceFile.check(path, STREAM)):
            with pytest.raises(StateFileError, match="in use by another backbone"):
                other(path)
        assert path.read_bytes() == before
        file.close()
        start(path).close()

    def test_check_releases_the_lock(self, path: Path) -> None:
        left_by(path, SequenceCheckpoint(10, 1_034))
        SequenceFile.check(path, STREAM, boot_id=BOOT)
        start(path).close()


class TestInaccessible:
    @pytest.mark.parametrize(
        "make", [lambda path: path.mkdir(), lambda path: path.symlink_to(path.with_name("nowhere"))]
    )
    def test_a_sequence_file_path_that_is_no_file_is_refused(self, path: Path, make: Callable[[Path], None]) -> None:
        make(path)
        assert "cannot be" in refusal(path)
        with pytest.raises(StateFileError, match="cannot be opened"):
            SequenceFile.check(path, STREAM)

    @pytest.mark.parametrize("parent", ["missing", "file"])
    def test_a_sequence_file_without_a_parent_directory_is_refused(self, tmp_path: Path, parent: str) -> None:
        (tmp_path / "file").write_bytes(b"")
        assert "cannot be" in refusal(tmp_path / parent / "fyrehose.state")

    def test_a_sequence_file_in_an_unsearchable_directory_is_refused(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def forbidden(*_: object, **__: object) -> int:
            raise PermissionError(errno.EACCES, "Permission denied")

        # Not with chmod, which does not restrict root.
        for call in ("open", "stat"):
            monkeypatch.setattr(os, call, forbidden)
        with pytest.raises(StateFileError, match="cannot be opened: Permission denied"):
            start(path)
        with pytest.raises(StateFileError, match="cannot be opened: Permission denied"):
            SequenceFile.check(path, STREAM)

    def test_a_failed_lock_call_is_not_reported_as_another_backbone(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_locks(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr("fcntl.flock", no_locks)
        with pytest.raises(StateFileError, match="cannot be opened: No locks available"):
            start(path)


class TestStartAt:
    @pytest.mark.parametrize("number", [1, 2, 4_711, MAX_SEQUENCE])
    def test_start_at_starts_a_new_stream_at_any_number_without_settling(self, path: Path, number: int) -> None:
        file = start(path, start_at=number)
        assert numbers(file) == (number - 1, number - 1, None)
        assert not file.fresh
        file.close()

    @pytest.mark.parametrize("number", [11, 1_034, 5_000])
    def test_start_at_may_skip_numbers_of_a_known_stream(self, path: Path, number: int) -> None:
        left_by(path, SequenceCheckpoint(10, 1_034))
        SequenceFile.check(path, STREAM, start_at=number, boot_id=BOOT)
        file = start(path, start_at=number)
        assert numbers(file) == (number - 1, max(number - 1, 1_034), None)
        file.close()

    @pytest.mark.parametrize("number", [0, 1, 10, MAX_SEQUENCE + 1])
    def test_start_at_may_not_repeat_an_assigned_number(self, path: Path, number: int) -> None:
        assert "is 10" in refusal(left_by(path, SequenceCheckpoint(10, 1_034)), start_at=number)

    @pytest.mark.parametrize("number", [11, 1_034])
    def test_start_at_may_not_repeat_a_reserved_number_after_a_power_failure(self, path: Path, number: int) -> None:
        left_by(path, SequenceCheckpoint(10, 1_034))
        assert "is 1034" in refusal(path, start_at=number, boot_id=OTHER_BOOT)
        file = start(path, start_at=1_035, boot_id=OTHER_BOOT)
        assert numbers(file) == (1_034, 1_034, (11, 1_034))
        file.close()

    def test_start_at_survives_a_run_without_new_numbers(self, path: Path) -> None:
        start(path, start_at=50).close()
        file = start(path, boot_id=OTHER_BOOT)
        assert (file.last, file.fresh) == (49, False)
        file.close()


class TestCheck:
    @pytest.mark.parametrize("boot_id", [BOOT, OTHER_BOOT])
    @pytest.mark.parametrize("start_at", [None, 2_000])
    def test_check_does_not_change_the_file(self, path: Path, boot_id: bytes, start_at: int | None) -> None:
        left_by(path, SequenceCheckpoint(10, 1_034))
        before, changed = path.read_bytes(), path.stat().st_mtime_ns
        SequenceFile.check(path, STREAM, start_at=start_at, boot_id=boot_id)
        assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, changed)

    def test_check_does_not_create_a_file(self, path: Path) -> None:
        with pytest.raises(StateFileError, match="cannot be opened"):
            SequenceFile.check(path, STREAM)
        assert not path.exists()


class TestPersist:
    @pytest.fixture
    def flushed(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
        """Return last number and bound in the file at each sync."""
        flushes: list[tuple[int, int]] = []

        class RecordingMmap(mmap.mmap):
            def flush(self, *_: Any) -> None:
                if self[:7] == b"FYRESEQ":
                    flushes.append(struct.unpack("=QQ", self[16:32]))
                super().flush()

        monkeypatch.setattr(mmap, "mmap", RecordingMmap)
        return flushes

    def test_a_sequence_file_is_synced_only_before_the_bound_is_passed(
        self, path: Path, flushed: list[tuple[int, int]]
    ) -> None:
        file = start(path)
        flushed.clear()
        for mark in (
            SequenceCheckpoint(1, 100),
            SequenceCheckpoint(2, 100),
            SequenceCheckpoint(99, 100),
            SequenceCheckpoint(150, 200),
            SequenceCheckpoint(200, 200),
            SequenceCheckpoint(201, 300),
        ):
            file.persist(mark)
            assert (file.last, file.bound) == (mark.last, mark.bound)
            assert struct.unpack("=QQ", path.read_bytes()[16:32]) == (mark.last, mark.bound)
        assert flushed == [(0, 100), (99, 200), (200, 300)]
        file.close()
        assert flushed[3:] == [(201, 201)]

    def test_persist_never_decreases_the_bound(self, path: Path, flushed: list[tuple[int, int]]) -> None:
        file = start(path)
        file.persist(SequenceCheckpoint(1, 100))
        flushed.clear()
        file.persist(SequenceCheckpoint(2, 50))
        assert (file.last, file.bound, flushed) == (2, 100, [])
        file.close()

    def test_a_failed_sync_of_the_bound_assigns_no_number(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class FailingMmap(mmap.mmap):
            works = True

            def flush(self, *_: Any) -> None:
                if not self.works:
                    raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(mmap, "mmap", FailingMmap)
        file = start(path)
        file.persist(SequenceCheckpoint(10, 100))
        FailingMmap.works = False
        with pytest.raises(StateFileError, match="cannot be written to disk: Input/output error"):
            file.persist(SequenceCheckpoint(101, 200))
        assert (file.last, file.bound) == (10, 100)
        assert struct.unpack("=Q", path.read_bytes()[16:24]) == (10,)
        file.persist(SequenceCheckpoint(11, 100))
        with pytest.raises(StateFileError, match="cannot be written to disk"):
            file.close()
        FailingMmap.works = True
        again = start(path)  # The lock was released despite the error.
        assert again.last == 11
        again.close()

    def test_numbers_skipped_by_start_at_are_synced_at_once(self, path: Path, flushed: list[tuple[int, int]]) -> None:
        file = start(path, start_at=5_000)
        assert flushed == [(4_999, 4_999)]
        file.close()
