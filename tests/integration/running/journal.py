"""Journal processes, their records, and the load that fills them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from integration.running.backbone import RunningBackbone
from integration.running.programs import Program, Start, wait_until

from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import open_reader


class RunningJournal:
    """``twistd fyrehose-journal`` in a process of its own, and its records.

    :ivar path: directory of the segments.
    """

    def __init__(self, launch: Start, backbone: RunningBackbone, root: Path, options: tuple[object, ...]) -> None:
        self._launch = launch
        self._command = ("-b", backbone.text, "-d", root)
        self._options = options
        self.path = root / "fyrehose-default"
        self.program: Program
        self.start()

    @property
    def port(self) -> int:
        """Return its UDP port once it is bound."""
        return int(self.program.wait_for(r"JournalProtocol starting on (\d+)")[1])

    def start(self, *more: object) -> None:
        """Start or restart it, and wait until it listens."""
        self.launch(*more)
        assert self.port

    def launch(self, *more: object) -> None:
        """Start it without waiting."""
        self.program = self._launch(*self._command, *self._options, *more)

    def stop(self) -> None:
        """Stop it with SIGTERM."""
        assert self.program.signal(signal.SIGTERM).finish() == -signal.SIGTERM, self.program
        assert "Traceback" not in self.program.out, self.program
        LocalDirectory(self.path).lock().close()  # Its lock is released.

    def kill(self) -> None:
        assert self.program.signal(signal.SIGKILL).finish() == -signal.SIGKILL

    def bounds(self) -> Bounds:
        """Return the range for readers, from 0 as long as nothing is readable."""
        try:
            with closing(open_reader(self.path)) as reader:
                return reader.bounds(0) or Bounds(0, 0, -1)
        except JournalError:
            return Bounds(0, 0, -1)

    def wait_for(self, number: int) -> None:
        """Wait until everything up to ``number`` is durable."""
        wait_until(lambda: self.bounds().next > number, lambda: f"no {number} in {self.bounds()}: {self.program}")

    def wait_for_live(self, number: int) -> None:
        """Wait until a message from ``number`` on is durable, whatever is missing before it."""
        wait_until(lambda: self.bounds().last >= number, lambda: f"no {number} in {self.bounds()}: {self.program}")

    def records(self, first: int = 0, last: int = 2**48) -> list[tuple[int, bytes]]:
        """Return numbers and payloads as readers see them."""
        with closing(open_reader(self.path)) as reader:
            bounds = reader.bounds(0)
            assert bounds is not None
            assert reader.losses(0, bounds.first, bounds.last) == []
            found: list[tuple[int, bytes]] = []
            for block in reader.read(0, max(first, bounds.first), min(last, bounds.next - 1)):
                found += zip(block.positions.tolist(), block.payloads(), strict=True)
            return found

    def digest(self, first: int = 0, last: int = 2**48) -> str:
        """Return a hash of the records as readers see them."""
        return sha256(repr(self.records(first, last)).encode()).hexdigest()

    def lines(self) -> list[bytes]:
        """Return the lines published by `fyrehose pub`."""
        return [payload[ENVELOPE_SIZE:] for _, payload in self.records()]


StartJournal = Callable[..., RunningJournal]


Numbered = Sequence[tuple[int, bytes]]


def compare_told(told: Numbered, raw: Numbered, seen: Numbered) -> None:
    """Compare publish results with the stream. No two published messages are equal.

    A message whose DELIVER is lost only on the way to its publisher is pushed again, and then has two numbers. Its
    publisher may be told the later one; subscribers drop the repeat, and receive the message under the first.

    :param told: numbers and messages of the results.
    :param raw: the stream with repeats and envelopes, as on the wire.
    :param seen: the stream as subscribers receive it.
    """
    for stream in (raw, seen):
        numbers = [number for number, _ in stream]
        assert numbers == sorted(set(numbers))
    # A reported number belongs to one message, and is reported once.
    on_the_wire = {number: data[ENVELOPE_SIZE:] for number, data in raw}
    assert [(number, on_the_wire.get(number)) for number, _ in told] == list(told)
    assert len({number for number, _ in told}) == len(told)
    # Subscribers receive each message once, under its first number.
    first: dict[bytes, int] = {}
    for number, data in raw:
        first.setdefault(data, number)
    firsts = {number: data[ENVELOPE_SIZE:] for data, number in first.items()}
    assert dict(seen) == firsts
    places = {data: number for number, data in seen}
    assert len(places) == len(seen)
    assert [data for number, data in told if places[data] > number] == []


FEED = """
import itertools, sys, time
size, each = int(sys.argv[1]), int(sys.argv[2])
for first in itertools.count(1, each):
    sys.stdout.write("".join(f"{number:0{size}}\\n" for number in range(first, first + each)))
    sys.stdout.flush()
    time.sleep(0.01)
"""
LINES_PER_SECOND = 15_000
"""Rate of a load, at which journals hold what they receive in a test in one segment."""


class Load:
    """``fyrehose pub`` that publishes the lines 1, 2, ... padded with zeros to ``size``, without end."""

    def __init__(self, start: Start, backbone: RunningBackbone, size: int) -> None:
        self.size = size
        feed = [sys.executable, "-c", FEED, str(size), str(LINES_PER_SECOND // 100)]
        self._numbers = subprocess.Popen(feed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._numbers.stdout is not None
        self.publisher = start("fyrehose", "pub", "-b", backbone.text, stdin=self._numbers.stdout)
        self._numbers.stdout.close()

    def pause(self) -> None:
        """Publish what is in flight, and stay connected to serve repairs."""
        self._numbers.send_signal(signal.SIGSTOP)

    def finish(self) -> None:
        """Publish what is in flight, and leave."""
        self.destroy()
        assert self.publisher.finish() == 0, self.publisher

    def destroy(self) -> None:
        self._numbers.kill()
        self._numbers.wait()

    def check(self, lines: list[bytes]) -> None:
        """Check that ``lines`` are all published lines. The last line may be cut, and messages pushed again because
        they came back late occur twice.
        """
        numbers = {int(line) for line in lines if len(line) == self.size}
        assert numbers == set(range(1, max(numbers) + 1)), f"{len(numbers)} of {max(numbers)}"


StartLoad = Callable[..., Load]
Check = Callable[[RunningJournal], str]
CheckTold = Callable[[Numbered, Numbered, Numbered], None]
