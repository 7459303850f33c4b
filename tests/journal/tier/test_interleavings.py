"""A tiered journal reads like one that was never tiered, whatever happens in which order."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from suite.object_storage import MemoryObjects

from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.tier.directory import BlockCache, TieredDirectory
from fyrehose_twisted.journal.tier.mover import SegmentMover
from fyrehose_twisted.record import Record
from fyrehose_twisted.sim.disk.disk import Disk

STREAM = "fyrehose://test"
CONFIG = JournalConfig(segment_bytes=500, frame_records=3, retention=Retention(seconds=40.0))

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 60), min_size=1, max_size=5)),
        st.tuples(st.just("lose"), st.integers(0, 60)),
        *(st.tuples(st.just(name)) for name in ("roll", "compact", "trim", "reopen", "move", "move one", "read")),
    ),
    max_size=40,
)


class Twin:
    """A journal, with its reader, of which every step but the moves is also done to another."""

    def __init__(self, *, tiered: bool) -> None:
        self.now = 0.0
        self.disk = Disk(Random(1))
        self.objects = MemoryObjects()
        self.directory = TieredDirectory(self.disk, self.objects, cache=BlockCache(300))
        self.tiered = tiered
        self.journal = self.open()
        self.reader: JournalReader | None = None

    def open(self) -> Journal:
        return Journal(self.directory, STREAM, config=CONFIG, tag=1, clock=lambda: self.now)

    def step(self, name: str, argument: object = None) -> None:
        self.now += 3.0
        match name, argument:
            case "append", list(numbers):
                time = int(self.now * 1_000_000)
                self.journal.append([Record(STREAM, 0, n, time, b"%d at %d" % (n, time)) for n in numbers])
                self.journal.commit()
            case "lose", int(number) if self.journal.bounds(0) is not None:
                self.journal.lose(0, number, number)
                self.journal.commit()
            case "roll", _:
                self.journal.roll()
            case "compact", _:
                self.journal.compact()
            case "trim", _:
                self.journal.trim()
            case "reopen", _:
                self.journal.close()
                self.journal = self.open()
            case (("move" | "move one"), _) if self.tiered:
                SegmentMover(self.disk, self.objects, "s3://b/p").run(limit=1 if name == "move one" else None)

    def view(self) -> list[object]:
        self.reader = self.reader or JournalReader(self.directory)
        self.reader.refresh()
        seen: list[object] = []
        for journal in (self.journal, self.reader, JournalReader(self.directory)):
            for epoch in journal.epochs():
                bounds = journal.bounds(epoch)
                assert bounds is not None
                blocks = journal.read(epoch, bounds.first, bounds.last)
                records = [record for block in blocks for record in block.records()]
                seen += [bounds, records, journal.losses(epoch, bounds.first, bounds.last)]
                seen += [journal.get(epoch, bounds.first), journal.get(epoch, bounds.last)]
        return [*seen, self.journal.damages, self.reader.damages]


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_moves_change_nothing_that_is_read(steps: list[tuple[object, ...]]) -> None:
    tiered, plain = Twin(tiered=True), Twin(tiered=False)
    for step in [*steps, ("move",), ("read",)]:
        for twin in (tiered, plain):
            twin.step(*step)  # type: ignore[arg-type]
        if step[0] == "read":
            assert tiered.view() == plain.view()
    SegmentMover(tiered.disk, tiered.objects, "s3://b/p").run()
    held = {name for name in tiered.directory.names() if name.endswith(".seg")}
    assert held == {name for name in plain.directory.names() if name.endswith(".seg")}
    assert len(tiered.objects.content) == len(held)
