from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.sim.disk.disk import Disk, PowerCut
from fyrehose_twisted.sim.disk.page_cache import SECTOR

SEEDS = range(200)
"""Enough seeds to draw every possible outcome."""


def new_disk(seed: int = 1, **files: bytes) -> Disk:
    """Return a disk with durable files."""
    disk = Disk(Random(seed))
    for name, content in files.items():
        file = disk.open(name, create=True)
        file.write(0, content)
        file.sync()
        file.close()
    disk.sync()
    return disk


def contents(disk: Disk) -> dict[str, bytes]:
    """Return the files as readers see them."""
    return {name: disk.open(name).read(0, 10**9) for name in disk.names()}


def after_power_loss(prepare: Callable[[Disk], object], **files: bytes) -> list[dict[str, bytes]]:
    """Return the states after a power failure following ``prepare``, for each of many seeds."""
    left = []
    for seed in SEEDS:
        disk = new_disk(seed, **files)
        prepare(disk)
        disk.power_lost()
        left.append(contents(disk))
        assert disk.durable == left[-1]
    return left


def errno_of(call: Callable[..., object], *args: Any, **options: Any) -> int | None:
    with pytest.raises(OSError) as caught:  # noqa: PT011  # Its number is what the caller looks at.
        call(*args, **options)
    return caught.value.errno


class TestFiles:
    def test_a_simulated_disk_and_its_files_provide_the_interfaces(self) -> None:
        disk = new_disk(a=b"x")
        assert verifyObject(IDirectory, disk)
        assert verifyObject(IFile, disk.open("a"))

    def test_written_bytes_are_readable_at_once_through_every_handle(self) -> None:
        disk = Disk(Random(1))
        file = disk.open("a", create=True)
        other = disk.open("a", writable=True)
        assert (file.size(), file.read(0, 10)) == (0, b"")
        file.write(0, b"hello world")
        other.write(6, memoryview(b"there"))
        assert file.read(0, 100) == other.read(0, 100) == b"hello there"
        assert (file.read(6, 3), file.read(9, 100), file.read(11, 5), file.read(99, 5)) == (b"the", b"re", b"", b"")
        other.write(13, bytearray(b"!"))
        assert (file.size(), file.read(9, 100)) == (14, b"re\0\0!")
        other.truncate(5)
        assert (file.size(), file.read(0, 100)) == (5, b"hello")
        file.truncate(7)
        assert other.read(0, 100) == b"hello\0\0"

    def test_invalid_file_operations_raise_their_errno(self) -> None:
        disk = new_disk(a=b"x", b=b"y")
        with pytest.raises(FileNotFoundError):
            disk.open("c")
        with pytest.raises(FileNotFoundError):
            disk.rename("c", "d")
        with pytest.raises(FileNotFoundError):
            disk.remove("c")
        with pytest.raises(FileExistsError):
            disk.open("a", create=True)
        reader = disk.open("a")
        assert errno_of(reader.write, 0, b"z") == errno_of(reader.truncate, 0) == errno.EBADF
        assert errno_of(reader.read, -1, 1) == errno_of(reader.read, 0, -1) == errno.EINVAL
        assert {errno_of(disk.open, name, create=True) for name in ("", ".", "..", "a/b", "a\0")} == {errno.EINVAL}
        assert errno_of(disk.rename, "a", "a/b") == errno.EINVAL
        assert contents(disk) == {"a": b"x", "b": b"y"}

    def test_operations_on_a_closed_file_raise_ebadf(self) -> None:
        file = new_disk(a=b"x").open("a", writable=True)
        file.close()
        file.close()
        for call in (file.size, file.sync, lambda: file.read(0, 1), lambda: file.write(0, b"")):
            assert errno_of(call) == errno.EBADF

    def test_names_are_listed_sorted_and_can_be_renamed_and_removed(self) -> None:
        disk = new_disk(b=b"1", a=b"2", c=b"3")
        assert disk.names() == ["a", "b", "c"]
        disk.rename("b", "c")
        disk.rename("a", "a")
        assert contents(disk) == {"a": b"2", "c": b"1"}
        disk.remove("a")
        assert disk.names() == ["c"]

    def test_an_open_file_survives_its_removal_or_replacement(self) -> None:
        disk = new_disk(a=b"1", b=b"2")
        removed, replaced = disk.open("a", writable=True), disk.open("b")
        disk.rename("a", "b")
        disk.remove("b")
        removed.write(1, b"!")
        assert (removed.read(0, 9), replaced.read(0, 9), disk.names()) == (b"1!", b"2", [])
        assert disk.open("a", create=True).size() == 0

    def test_the_lock_of_a_simulated_disk_is_exclusive(self) -> None:
        disk = Disk(Random(1))
        lock = disk.lock()
        with pytest.raises(BlockingIOError):
            disk.lock()
        lock.close()
        other = disk.lock()
        lock.close()
        with pytest.raises(BlockingIOError):
            disk.lock()
        disk.process_killed()
        disk.lock()
        other.close()
        with pytest.raises(BlockingIOError):
            disk.lock()


class TestCrashes:
    @pytest.mark.parametrize("crash", [Disk.process_killed, Disk.power_lost, Disk.wipe])
    def test_files_opened_before_a_crash_raise_ebadf(self, crash: Callable[[Disk], None]) -> None:
        disk = new_disk(a=b"x")
        file = disk.open("a", writable=True)
        disk.lock()
        crash(disk)
        for call in (file.size, file.sync, lambda: file.read(0, 1), lambda: file.write(0, b"y")):
            assert errno_of(call) == errno.EBADF
        file.close()
        disk.lock()

    def test_unsynced_writes_survive_a_kill_but_not_a_power_failure(self) -> None:
        def prepare(disk: Disk) -> None:
            disk.open("a", writable=True).write(0, b"y")
            disk.open("new", create=True).write(0, b"z")
            disk.process_killed()
            assert contents(disk) == {"a": b"y", "new": b"z"}
            assert disk.durable == {"a": b"x", "new": b""}

        left = after_power_loss(prepare, a=b"x")
        assert {state["a"] for state in left} == {b"x", b"y"}
        assert {state.get("new") for state in left} == {None, b"", b"\0", b"z"}

    def test_synced_data_survives_a_power_failure(self) -> None:
        def prepare(disk: Disk) -> None:
            file = disk.open("a", writable=True)
            file.write(1, b"Y" * 2_000)
            file.truncate(1_000)
            file.sync()
            disk.rename("b", "c")
            disk.remove("d")
            disk.open("e", create=True)
            disk.sync()

        left = after_power_loss(prepare, a=b"x" * 10, b=b"B", d=b"D")
        assert left == [{"a": b"x" + b"Y" * 999, "c": b"B", "e": b""}] * len(SEEDS)

    def test_any_part_of_unsynced_writes_may_survive_a_power_failure(self) -> None:
        one, two, three = (letter * SECTOR for letter in (b"1", b"2", b"3"))

        def prepare(disk: Disk) -> None:
            file = disk.open("a", writable=True)
            file.write(0, one + two)
            file.write(2 * SECTOR, three)

        zeros = bytes(SECTOR)
        left = [state["a"] for state in after_power_loss(prepare, a=b"")]
        assert set(left) >= {
            b"",
            one + two + three,
            zeros + zeros + three,
            one,
            one + two,
            one + zeros + three,
            zeros + two,
            zeros + two + three,
            zeros + zeros + zeros,
        }
        for likely in (b"", one + two + three, zeros + zeros + three):
            assert left.count(likely) > len(left) / 10

    def test_unsynced_writes_survive_by_whole_sectors(self) -> None:
        left = after_power_loss(lambda disk: disk.open("a", writable=True).write(500, b"y" * 600), a=b"x" * 1_100)
        whole = b"x" * 500 + b"y" * 600
        for state in left:
            for begin in range(0, 1_100, SECTOR):
                piece = slice(begin, begin + SECTOR)
                assert state["a"][piece] in (whole[piece], (b"x" * 1_100)[piece])
        assert len({state["a"] for state in left}) == 8

    def test_an_unsynced_truncation_may_be_undone_by_a_power_failure(self) -> None:
        def prepare(disk: Disk) -> None:
            file = disk.open("a", writable=True)
            file.truncate(2)
            file.write(2, b"!")

        left = {state["a"] for state in after_power_loss(prepare, a=b"abcde")}
        assert left >= {b"abcde", b"ab", b"ab!", b"ab!de", b"ab\0"}
        assert left <= {b"abcde", b"ab", b"ab!", b"ab!de", b"ab\0"}

    def test_a_synced_file_with_an_unsynced_name_may_be_lost(self) -> None:
        def prepare(disk: Disk) -> None:
            file = disk.open("a", create=True)
            file.write(0, b"x")
            file.sync()

        left = after_power_loss(prepare)
        assert [state for state in left if state not in ({}, {"a": b"x"})] == []
        assert 0.2 < left.count({}) / len(left) < 0.8

    def test_an_unsynced_rename_or_removal_may_be_undone_by_a_power_failure(self) -> None:
        left = after_power_loss(lambda disk: disk.rename("a", "b"), a=b"A", b=b"B")
        expected: list[dict[str, bytes]] = [{"a": b"A", "b": b"B"}, {"b": b"A"}, {"a": b"A", "b": b"A"}]
        assert all(state in expected for state in left)
        assert all(state in left for state in expected)
        left = after_power_loss(lambda disk: disk.remove("a"), a=b"A")
        assert all(state in left for state in ({}, {"a": b"A"}))

    def test_a_file_renamed_repeatedly_without_sync_is_never_lost(self) -> None:
        def prepare(disk: Disk) -> None:
            for old, new in ("ab", "bc", "cd", "da", "ae"):
                disk.rename(old, new)

        left = after_power_loss(prepare, a=b"A")
        assert all(state and set(state.values()) == {b"A"} for state in left)
        assert {name for state in left for name in state} == set("abcde")

    def test_files_renamed_in_a_chain_without_sync_are_never_lost(self) -> None:
        def prepare(disk: Disk) -> None:
            disk.rename("b", "c")
            disk.rename("a", "b")

        left = after_power_loss(prepare, a=b"A", b=b"B")
        assert all(set(state.values()) == {b"A", b"B"} for state in left)

    def test_a_file_left_under_both_names_may_miss_unsynced_writes(self) -> None:
        def prepare(disk: Disk) -> None:
            disk.open("a", writable=True).write(0, b"x")
            disk.rename("a", "b")

        left = after_power_loss(prepare, a=b"A")
        for one in (b"A", b"x"):
            assert all({"a": one, "b": other} in left for other in (b"A", b"x"))

    def test_a_file_left_under_both_names_becomes_two_independent_files(self) -> None:
        twice = 0
        for seed in SEEDS:
            disk = new_disk(seed, a=b"A")
            disk.rename("a", "b")
            disk.power_lost()
            if disk.names() == ["a", "b"]:
                twice += 1
                disk.open("a", writable=True).write(0, b"x")
                assert (contents(disk), disk.used_bytes) == ({"a": b"x", "b": b"A"}, 2)
        assert twice

    def test_the_survival_of_two_unsynced_files_is_independent(self) -> None:
        def prepare(disk: Disk) -> None:
            disk.open("a", create=True).sync()
            disk.open("b", create=True).sync()

        left = after_power_loss(prepare)
        assert {tuple(state) for state in left} == {(), ("a",), ("b",), ("a", "b")}

    def test_a_lost_disk_is_empty(self) -> None:
        disk = new_disk(a=b"x")
        disk.power_cut_after = 100
        disk.wipe()
        assert (disk.names(), disk.durable, disk.used_bytes, disk.power_cut_after) == ([], {}, 0, None)
        disk.open("a", create=True).write(0, b"y")

    def test_the_state_after_a_power_failure_depends_only_on_the_seed(self) -> None:
        def prepare(disk: Disk) -> None:
            for name in "zyx":
                disk.open(name, create=True).write(0, bytes(range(256)) * 20)

        assert after_power_loss(prepare) == after_power_loss(prepare)


class TestFuse:
    def work(self, disk: Disk) -> None:
        file = disk.open("tmp", create=True)
        file.write(0, b"12345")
        file.write(5, b"")
        file.truncate(4)
        file.sync()
        disk.rename("tmp", "a")
        disk.sync()
        disk.remove("b")

    def test_each_disk_operation_consumes_the_power_cut_budget(self) -> None:
        disk = new_disk(b=b"B")
        before = disk.spent
        self.work(disk)
        assert disk.spent - before == 1 + 5 + 1 + 1 + 1 + 1 + 1
        contents(disk)
        disk.lock()
        assert disk.spent - before == 11

    def test_power_can_be_cut_at_any_byte_written(self) -> None:
        seen = []
        for fuse in range(12):
            disk = new_disk(b=b"B")
            disk.power_cut_after = fuse
            if fuse < 11:
                with pytest.raises(PowerCut):
                    self.work(disk)
                disk.process_killed()
                assert disk.power_cut_after is None
            else:
                self.work(disk)
                assert disk.power_cut_after == 0
                disk.power_cut_after = None
            seen.append((contents(disk), disk.durable))
        tmp = {"b": b"B"}
        assert [state for state, _ in seen] == [
            tmp,
            *({**tmp, "tmp": b"12345"[:length]} for length in range(6)),
            {**tmp, "tmp": b"1234"},
            {**tmp, "tmp": b"1234"},
            {**tmp, "a": b"1234"},
            {**tmp, "a": b"1234"},
            {"a": b"1234"},
        ]
        assert [durable.get("tmp", durable.get("a")) for _, durable in seen] == [None] + [b""] * 7 + [b"1234"] * 4

    def test_a_power_cut_is_not_an_exception_subclass(self) -> None:
        assert not issubclass(PowerCut, Exception)

    def test_after_a_power_cut_every_operation_fails_until_the_crash(self) -> None:
        disk = new_disk(a=b"x")
        file = disk.open("a", writable=True)
        lock = disk.lock()
        disk.power_cut_after = 2
        with pytest.raises(PowerCut):
            file.write(0, b"123")
        calls: list[Callable[[], object]] = [
            file.size,
            file.sync,
            lambda: file.read(0, 1),
            lambda: file.write(0, b""),
            lambda: file.truncate(9),
            disk.names,
            disk.sync,
            disk.lock,
            lambda: disk.open("a"),
            lambda: disk.rename("a", "b"),
            lambda: disk.remove("a"),
        ]
        for call in calls:
            with pytest.raises(PowerCut):
                call()
        file.close()
        lock.close()
        disk.process_killed()
        assert contents(disk) == {"a": b"12"}

    def test_a_pending_power_cut_survives_a_kill_but_not_a_power_failure(self) -> None:
        disk = new_disk(a=b"x")
        disk.power_cut_after = 1
        disk.process_killed()
        assert disk.power_cut_after == 1
        disk.power_lost()
        assert disk.power_cut_after is None


class TestTroubles:
    def test_a_write_to_a_full_disk_stores_the_part_that_fits(self) -> None:
        disk = Disk(Random(1), capacity=10)
        one, other = disk.open("a", create=True), disk.open("b", create=True)
        one.write(0, b"12345")
        assert errno_of(other.write, 0, b"1234567") == errno.ENOSPC
        assert contents(disk) == {"a": b"12345", "b": b"12345"}
        assert disk.used_bytes == 10
        one.write(0, b"abcde")
        assert (
            errno_of(one.write, 4, b"EF") == errno_of(one.write, 9, b"x") == errno_of(one.truncate, 6) == errno.ENOSPC
        )
        assert errno_of(disk.open, "c", create=True) == errno.ENOSPC
        assert contents(disk) == {"a": b"abcdE", "b": b"12345"}
        other.truncate(4)
        one.write(5, b"!")
        assert contents(disk) == {"a": b"abcdE!", "b": b"1234"}
        other.sync()
        disk.capacity = 3
        one.write(0, b"xyz")
        assert errno_of(one.write, 6, b"?") == errno.ENOSPC

    def test_a_removed_file_frees_space_once_it_is_closed(self) -> None:
        disk = Disk(Random(1), capacity=10)
        one, other = disk.open("a", create=True), disk.open("b", create=True)
        same = disk.open("a")
        one.write(0, b"1" * 10)
        disk.rename("b", "a")
        one.close()
        assert errno_of(other.write, 0, b"x") == errno.ENOSPC
        same.close()
        assert disk.used_bytes == 0
        other.write(0, b"x" * 10)
        disk.rename("a", "a")
        assert disk.used_bytes == 10
        disk.remove("a")
        assert disk.used_bytes == 10
        disk.process_killed()
        assert disk.used_bytes == 0

    def test_removing_a_closed_file_frees_space_at_once(self) -> None:
        disk = new_disk(a=b"123", b=b"4567", c=b"89")
        disk.remove("a")
        assert disk.used_bytes == 6
        disk.rename("c", "b")
        assert disk.used_bytes == 2

    def test_only_handles_opened_since_a_crash_hold_space_of_removed_files(self) -> None:
        disk = new_disk(a=b"123")
        before = disk.open("a")
        disk.process_killed()
        before.close()
        since = disk.open("a")
        disk.remove("a")
        assert disk.used_bytes == 3
        since.close()
        assert disk.used_bytes == 0
        back = 0
        for seed in SEEDS:
            disk = new_disk(seed, a=b"123")
            disk.open("a")
            disk.remove("a")
            disk.power_lost()
            if disk.names():
                back += 1
                disk.remove("a")
            assert disk.used_bytes == 0
        assert back

    def test_a_disk_capacity_can_be_reduced_and_restored(self) -> None:
        disk = new_disk(a=b"123")
        file = disk.open("a", writable=True)
        first, second = disk.fill(), disk.fill()
        assert errno_of(file.write, 0, b"abcd") == errno.ENOSPC
        disk.clear_impairment(first)
        disk.clear_impairment(first)
        assert errno_of(file.write, 3, b"d") == errno.ENOSPC
        disk.clear_impairment(second)
        file.write(3, b"d")
        assert contents(disk) == {"a": b"abcd"}

    def test_read_errors_affect_the_configured_files_until_repaired(self) -> None:
        disk = new_disk(a1=b"x", b=b"y")
        one, other = disk.open("a1"), disk.open("b")
        trouble = disk.fail_reads("a")
        assert errno_of(one.read, 0, 1) == errno.EIO
        assert (one.size(), other.read(0, 1)) == (1, b"y")
        everything = disk.fail_reads()
        assert errno_of(other.read, 0, 1) == errno.EIO
        disk.clear_impairment(everything)
        assert errno_of(one.read, 0, 1) == errno.EIO
        assert other.read(0, 1) == b"y"
        disk.clear_impairment(trouble)
        assert one.read(0, 1) == b"x"
        disk.fail_reads()
        disk.clear_impairment()
        assert one.read(0, 1) == b"x"

    def test_writes_of_a_failed_sync_never_become_durable(self) -> None:
        def prepare(disk: Disk) -> None:
            file = disk.open("a", writable=True)
            file.truncate(1)
            file.write(1, b"lost")
            disk.fail_syncs("a")
            disk.sync()
            assert errno_of(file.sync) == errno.EIO
            disk.clear_impairment()
            file.sync()
            file.write(7, b"kept")
            file.sync()
            assert file.read(0, 100) == b"xlost\0\0kept"
            disk.process_killed()
            assert contents(disk)["a"] == b"xlost\0\0kept"

        assert after_power_loss(prepare, a=b"xyz") == [{"a": b"x" + bytes(6) + b"kept"}] * len(SEEDS)

    def test_names_of_a_failed_directory_sync_become_durable_with_the_next_sync(self) -> None:
        def prepare(disk: Disk) -> None:
            disk.rename("a", "b")
            disk.fail_syncs()
            assert errno_of(disk.sync) == errno.EIO
            disk.clear_impairment()

        assert {"a": b"x"} in after_power_loss(prepare, a=b"x")

        def and_again(disk: Disk) -> None:
            prepare(disk)
            disk.sync()

        assert after_power_loss(and_again, a=b"x") == [{"b": b"x"}] * len(SEEDS)


class TestRot:
    def test_bit_rot_flips_one_durable_bit(self) -> None:
        seen = set()
        for seed in SEEDS:
            disk = new_disk(a=b"\0\0", b=b"", c=b"\0")
            disk.open("c", writable=True).write(1, b"\0\0")
            rng = Random(seed)
            where = disk.flip_bits_at_fraction(rng.random(), 1 << rng.randrange(8))
            assert where is not None
            name, offset = where
            assert contents(disk)[name][offset] == disk.durable[name][offset] != 0
            bits = int.from_bytes(b"".join(disk.durable.values()), "big")
            assert bits.bit_count() == 1
            seen.add((name, offset, bits))
        assert len(seen) == 3 * 8
        assert new_disk(a=b"").flip_bits_at_fraction(0.5, 1) is None

    def test_bit_rot_is_visible_at_once_and_survives_a_crash(self) -> None:
        disk = new_disk(a=b"abc")
        file = disk.open("a")
        disk.flip_bits("a", 1, 0x20)
        assert file.read(0, 3) == b"aBc"
        disk.power_lost()
        assert contents(disk) == {"a": b"aBc"}

    def test_a_later_write_hides_and_repairs_bit_rot(self) -> None:
        disk = new_disk(a=b"abc")
        file = disk.open("a", writable=True)
        file.write(1, b"b")
        disk.flip_bits("a", 1, 0x20)
        assert (file.read(0, 3), disk.durable) == (b"abc", {"a": b"aBc"})
        file.sync()
        assert disk.durable == {"a": b"abc"}
        file.truncate(1)
        disk.flip_bits("a", 2, 1)
        assert (file.read(0, 3), disk.durable) == (b"a", {"a": b"abb"})
        file.truncate(3)
        file.sync()
        file.truncate(1)
        file.truncate(3)
        disk.flip_bits("a", 2, 1)
        assert (file.read(0, 3), disk.durable) == (b"a\0\0", {"a": b"a\0\1"})

    def test_bit_rot_hits_all_files_in_proportion_to_their_size(self) -> None:
        for number, place in enumerate([("a", 0), ("a", 1), ("c", 0), ("c", 1)]):
            disk = new_disk(c=b"12", b=b"", a=b"12")
            assert (
                disk.flip_bits_at_fraction(number / 4, 1) == disk.flip_bits_at_fraction(number / 4 + 0.24, 1) == place
            )

    def test_bit_rot_spares_empty_and_unsynced_files(self) -> None:
        disk = new_disk(a=b"x")
        disk.open("a", writable=True).write(1, b"y")
        for offset, mask in ((1, 1), (-1, 1), (0, 0), (0, 256)):
            with pytest.raises(ValueError, match="1 bytes are durable"):
                disk.flip_bits("a", offset, mask)
        with pytest.raises(FileNotFoundError):
            disk.flip_bits("b", 0, 1)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("ab"), st.integers(0, 1_200), st.integers(0, 1_300)),
        st.tuples(st.just("truncate"), st.sampled_from("ab"), st.integers(0, 2_000), st.just(0)),
        st.tuples(st.just("sync"), st.sampled_from("ab"), st.just(0), st.just(0)),
        st.tuples(st.just("killed"), st.just("a"), st.just(0), st.just(0)),
        st.tuples(st.just("power lost"), st.just("a"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@given(st.integers(0, 10**6), operations)
def test_synced_bytes_survive_and_unwritten_bytes_never_appear(seed: int, steps: list[Any]) -> None:
    disk = new_disk(seed, a=b"", b=b"")
    seen = {"a": b"", "b": b""}
    # Possible values of each byte after a power failure, and possible lengths of the file.
    may: dict[str, list[set[int]]] = {"a": [], "b": []}
    lengths: dict[str, set[int]] = {"a": {0}, "b": {0}}
    for number, (what, name, offset, length) in enumerate(steps, 1):
        file = disk.open(name, writable=True)
        if what == "write":
            data = bytes([number]) * length
            file.write(offset, data)
            if data:
                old = seen[name].ljust(offset, b"\0")
                seen[name] = old[:offset] + data + old[offset + length :]
                may[name] += [set() for _ in range(offset + length - len(may[name]))]
                for position in range(offset + length):
                    may[name][position] |= {number if position >= offset else 0, 0}
        elif what == "truncate":
            file.truncate(offset)
            seen[name] = seen[name][:offset].ljust(offset, b"\0")
            may[name] += [set() for _ in range(offset - len(may[name]))]
            for position in range(len(may[name])):
                may[name][position].add(0)
            lengths[name].add(offset)
        elif what == "sync":
            file.sync()
        elif what == "killed":
            disk.process_killed()
        else:
            disk.power_lost()
            for each, content in contents(disk).items():
                assert len(content) >= min(lengths[each])
                assert len(content) <= len(may[each])
                assert all(byte in may[each][position] for position, byte in enumerate(content))
                seen[each] = content
        if what in ("sync", "power lost"):
            for each in name if what == "sync" else "ab":
                may[each] = [{byte} for byte in seen[each]]
                lengths[each] = {len(seen[each])}
        assert contents(disk) == seen
    for name in "ab":
        disk.open(name).sync()
    disk.power_lost()
    assert contents(disk) == seen
