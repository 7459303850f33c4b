from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import INode, Outputs
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.disk.disk import Disk
from fyrehose_twisted.sim.fault_generators import bit_rot, crashes, disk_errors, power_cuts
from fyrehose_twisted.sim.faults.disk_faults import BitRot, FullDisk, PowerLoss, ReadErrors, SyncErrors
from fyrehose_twisted.sim.faults.faults import Fault
from fyrehose_twisted.sim.host import RESTART_DELAY, Host
from fyrehose_twisted.sim.observer import Observer
from fyrehose_twisted.sim.scenario import Scenario
from fyrehose_twisted.sim.schedule import FaultSchedule, shrink

ALL: list[Fault] = [
    FullDisk(1.0, 3.0, "journal-1"),
    ReadErrors(1.5, 3.0, "journal-1"),
    SyncErrors(2.0, 3.0, "journal-1"),
    BitRot(2.5, 0.0, "journal-1", 0.37, 3),
    PowerLoss(3.0, 2.5, "journal-1", 345),
]

TEXT = """\
1.0 full journal-1 for 3.0
1.5 bad-reads journal-1 for 3.0
2.0 bad-syncs journal-1 for 3.0
2.5 rot journal-1 0.37 bit 3
3.0 power-cut journal-1 after 345 bytes for 2.5
"""


@implementer(INode)
class Diarist:
    """A node that appends a counter to a file four times a second and resumes from it."""

    def __init__(self, boot: Boot, disk: Disk) -> None:
        if "diary" not in disk.names():
            disk.open("diary", create=True).close()
            disk.sync()
        self.file = disk.open("diary", writable=True)
        self.entries = self.file.size() // 4
        self.read = self.file.read(0, 4 * self.entries)
        self.deadline = boot.now + 0.25
        self.due = False

    def tick(self, now: float) -> None:
        self.deadline, self.due = now + 0.25, True

    def next_deadline(self) -> float:
        return self.deadline

    def drain(self) -> Outputs:
        due, self.due = self.due, False
        return Outputs(self.entries if due else None, [], [("written", self.entries)] if due else [])

    def persist(self, number: int) -> None:
        self.file.write(4 * number, number.to_bytes(4, "big"))
        self.file.sync()
        self.entries = number + 1


class Diary(Scenario):
    """A scenario of two nodes that write to disk."""

    name = "tests.diary"
    duration = 30.0

    def build(self) -> None:
        for number, name in enumerate(("journal-1", "journal-2")):
            disk = Disk(Random(f"{self.seed}/disk/{name}"))
            host = self.network.add(name, (f"10.0.0.{number}", number), lambda boot, disk=disk: Diarist(boot, disk))
            host.disk = disk
            host.on_persist = lambda what, host=host: host.node.persist(what)
        self.network.add("client", ("10.0.0.9", 9), lambda boot: Diarist(boot, Disk(Random(1))))
        self.story = Story()
        self.network.add_observer(self.story)

    def draw_faults(self, rng: Random) -> FaultSchedule:
        names = ("journal-1", "journal-2")
        kinds = [
            (3.0, disk_errors(names)),
            (3.0, power_cuts(names, max_bytes=60)),
            (1.0, bit_rot(names)),
            (1.0, crashes(names, kinds=tuple(CrashMode), after_persist=0.3)),
        ]
        return FaultSchedule.draw(rng, 8, until=25.0, kinds=kinds)


class Story(Observer):
    """An observer that records stops and starts of hosts."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, str, str]] = []

    def started(self, host: Host) -> None:
        self.rows.append((round(host.network.elapsed, 3), host.name, "started"))

    def stopped(self, host: Host, description: str) -> None:
        self.rows.append((round(host.network.elapsed, 3), host.name, description))

    def of(self, name: str) -> list[tuple[float, str]]:
        """Return the record of one host after its first start."""
        return [(when, what) for when, who, what in self.rows if who == name][1:]


def run(*lines: str) -> Diary:
    diary = Diary(1, faults=FaultSchedule.parse("\n".join(lines)))
    outcome = diary.run()
    assert outcome.violation is None
    assert diary.story.of("journal-2") == []
    return diary


def test_a_full_disk_stops_a_process_until_space_is_freed() -> None:
    full = "could not persist: OSError: [Errno 28] the disk is full: 'diary'"
    story = run("1.1 full journal-1 for 3.0").story.of("journal-1")
    assert story == [(1.25, full), (3.25, "started"), (3.5, full), (5.5, "started")]


def test_read_errors_prevent_a_process_from_starting() -> None:
    story = run("1.1 bad-reads journal-1 for 3.0", "2.1 crash journal-1 killed for 1.0").story.of("journal-1")
    failed = "could not start: OSError: [Errno 5] a read failed: 'diary'"
    assert story == [(2.1, "killed"), (3.1, failed), (5.1, "started")]


def test_sync_errors_stop_a_process() -> None:
    story = run("1.1 bad-syncs journal-1 for 1.5").story.of("journal-1")
    assert story == [(1.25, "could not persist: OSError: [Errno 5] a sync failed: 'diary'"), (3.25, "started")]


def test_a_bit_rot_fault_flips_a_bit_of_the_disk() -> None:
    # The 12th of eight entries and 32 bytes.
    diary = run("2.1 rot journal-1 0.37 bit 3")
    disk = diary.network.host("journal-1").disk
    assert disk is not None
    assert disk.durable["diary"][:32] == b"".join(number.to_bytes(4, "big") for number in (0, 1, 10, 3, 4, 5, 6, 7))
    run("0.0 rot journal-1 0.37 bit 3")


def test_a_power_cut_fault_strikes_in_the_middle_of_a_write() -> None:
    # An entry costs 5, so this is in the middle of the third.
    diary = run("1.1 power-cut journal-1 after 12 bytes for 2.5")
    assert diary.story.of("journal-1") == [(1.75, "power lost while the disk was busy"), (4.25, "started")]
    disk = diary.network.host("journal-1").disk
    assert disk is not None
    assert disk.power_cut_after is None
    assert disk.durable["diary"][:24] == b"".join(number.to_bytes(4, "big") for number in range(6))


@pytest.mark.parametrize(
    "lines",
    [
        ["1.1 power-cut journal-1 after 50 bytes for 2.4"],  # Too little disk activity.
        ["1.1 power-cut journal-1 after 10 bytes for 0.1"],
        ["0.0 power-cut journal-1 after 0 bytes for 0.0"],
    ],
)
def test_a_power_cut_fault_expires_without_enough_disk_activity(lines: list[str]) -> None:
    assert run(*lines).story.of("journal-1") == []


def test_disk_faults_do_not_affect_a_host_that_is_down() -> None:
    story = run("1.1 crash journal-1 killed for 1.0", "1.5 power-cut journal-1 after 3 bytes for 3.0")
    assert story.story.of("journal-1") == [(1.1, "killed"), (2.1, "started")]


def test_a_power_cut_fault_strikes_a_restarted_process() -> None:
    story = run("1.1 power-cut journal-1 after 3 bytes for 3.0", "1.2 crash journal-1 killed for 1.0")
    assert story.story.of("journal-1") == [
        (1.2, "killed"),
        (2.2, "started"),
        (2.45, "power lost while the disk was busy"),
        (5.45, "started"),
    ]


def test_the_latest_of_several_power_cut_faults_applies_until_its_end() -> None:
    story = run("1.1 power-cut journal-1 after 100 bytes for 1.0", "2.0 power-cut journal-1 after 12 bytes for 3.0")
    assert story.story.of("journal-1") == [(2.5, "power lost while the disk was busy"), (5.5, "started")]


def test_a_power_failure_cancels_a_pending_power_cut() -> None:
    story = run("1.1 power-cut journal-1 after 5 bytes for 9.0", "1.2 crash journal-1 power lost for 1.0")
    assert story.story.of("journal-1") == [(1.2, "power lost"), (2.2, "started")]


def test_overlapping_disk_faults_end_independently() -> None:
    story = run("1.1 full journal-1 for 9.0", "1.2 full journal-1 for 1.0").story.of("journal-1")
    assert story[-1] == (10.0, "started")


def test_a_disk_fault_on_a_host_without_a_disk_is_an_error() -> None:
    for fault in ALL:
        text = str(fault).replace("journal-1", "client")
        with pytest.raises(ConfigurationError) as caught:
            FaultSchedule.parse(text).check(Diary(1).network)
        assert str(caught.value) == f"the fault '{text}': client has no disk"
        text = text.replace("client", "nobody")
        with pytest.raises(ConfigurationError, match=f"'{text}': no host 'nobody'"):
            FaultSchedule.parse(text).check(Diary(1).network)


def test_disk_faults_round_trip_as_text() -> None:
    schedule = FaultSchedule(ALL)
    assert str(schedule) == TEXT
    assert FaultSchedule.parse(TEXT) == schedule
    assert [fault.host_names() for fault in schedule] == [("journal-1",)] * 5
    assert [fault.ends_at for fault in schedule] == [
        4.0 + RESTART_DELAY,
        4.5 + RESTART_DELAY,
        5.0 + RESTART_DELAY,
        2.5,
        8.0,
    ]


seconds, names = (
    st.floats(0.0, 1e300),
    st.from_regex(r"[a-z0-9>.-]{1,4}", fullmatch=True).filter(lambda name: name != "for"),
)
faults = st.one_of(
    st.builds(FullDisk, seconds, seconds, names),
    st.builds(ReadErrors, seconds, seconds, names),
    st.builds(SyncErrors, seconds, seconds, names),
    st.builds(BitRot, seconds, st.just(0.0), names, st.floats(0.0, 1.0, exclude_max=True), st.integers(0, 7)),
    st.builds(PowerLoss, seconds, seconds, names, st.integers(0, 10**30)),
)


@given(st.lists(faults, max_size=4))
def test_arbitrary_disk_faults_round_trip_as_text(drawn: list[Fault]) -> None:
    schedule = FaultSchedule(drawn)
    assert FaultSchedule.parse(str(schedule)) == schedule


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1 full a b for 2", "such as: 1 full journal-1 for 3.0"),
        ("1 full a", "the duration is missing"),
        ("1 rot a 0.5", "such as: 1 rot journal-1 0.37 bit 3"),
        ("1 rot a 0.5 bit 8", "such as: 1 rot journal-1"),
        ("1 rot a 1.0 bit 7", "1.0 is not a fraction of the durable bytes"),
        ("1 rot a -0.1 bit 7", "-0.1 is not a fraction of the durable bytes"),
        ("1 rot a much bit 7", "'much' is not a number"),
        ("1 power-cut a after -1 bytes for 2", "such as: 1 power-cut journal-1 after 345 bytes for 2.5"),
        ("1 power-cut a after 1 bytes", "the duration is missing"),
    ],
)
def test_an_invalid_disk_fault_is_reported_with_its_syntax(line: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        FaultSchedule.parse(line)


def test_generated_disk_faults_cover_every_kind_and_round_trip() -> None:
    kinds: list[tuple[float, Callable[[Random, float], Fault]]] = [
        (3.0, disk_errors("ab", max_duration=3.0)),
        (1.0, power_cuts("ab", max_duration=3.0, max_bytes=10_000)),
        (1.0, bit_rot("ab")),
        (1.0, disk_errors("c", kinds=[SyncErrors])),
    ]
    drawn = FaultSchedule.draw(Random(1), 600, until=60.0, kinds=kinds)
    assert FaultSchedule.parse(str(drawn)) == drawn
    assert {type(fault) for fault in drawn} == {FullDisk, ReadErrors, SyncErrors, BitRot, PowerLoss}
    assert {type(fault) for fault in drawn if fault.host_names() == ("c",)} == {SyncErrors}
    assert {name for fault in drawn for name in fault.host_names()} == set("abc")
    assert all(0.1 <= fault.duration <= 3.0 for fault in drawn if isinstance(fault, (FullDisk, PowerLoss)))
    costs = sorted(fault.cost for fault in drawn if isinstance(fault, PowerLoss))
    assert 1 <= costs[0] < 10 < 1_000 < costs[-1] <= 10_000
    shares = sorted((fault.fraction, fault.bit) for fault in drawn if isinstance(fault, BitRot))
    assert shares[0][0] < 0.1 < 0.9 < shares[-1][0]
    assert {bit for _, bit in shares} == set(range(8))


def test_disk_faults_can_be_shrunk() -> None:
    drawn = Diary(3).faults
    assert any(isinstance(fault, PowerLoss) for fault in drawn)

    def power_is_cut(schedule: FaultSchedule) -> bool:
        diary = Diary(3, faults=schedule)
        diary.run()
        return any("busy" in what for _, _, what in diary.story.rows)

    (fault,) = shrink(drawn, power_is_cut)
    assert isinstance(fault, PowerLoss)


def traced(seed: int, faults: FaultSchedule | None = None) -> list[dict[str, Any]]:
    out = StringIO()
    outcome = Diary(seed, faults=faults).run(out)
    assert outcome.violation is None
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_run_with_disk_faults_is_reproducible_from_its_printed_faults() -> None:
    stops = set()
    for seed in range(10):
        trace = traced(seed)
        assert traced(seed) == trace
        assert traced(seed, FaultSchedule.parse(str(Diary(seed).faults))) == trace
        stops |= {entry["what"].partition(":")[0] for entry in trace if entry["kind"] == "stop"}
    assert stops == {
        "killed",
        "power lost",
        "disk lost",
        "could not start",
        "could not persist",
        "power lost while the disk was busy",
    }
    assert traced(1) != traced(2)
