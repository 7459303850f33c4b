"""The journals of the demo: two processes that keep the stream, each in a directory of its own."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.task import deferLater

from fyrehose_twisted.fyrehose.envelope import ENVELOPE_SIZE, unwrap
from fyrehose_twisted.journal.contents import Bounds
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.layout import directory_name
from fyrehose_twisted.journal.reader import JournalReader, open_reader

STREAM = "fyrehose://flights"
PATIENCE = 120.0
"""Seconds that a journal may take to catch up."""


class Contents(NamedTuple):
    """What a journal holds below its watermark."""

    bounds: Bounds
    records: int
    lost: int
    sha256: str
    """Of numbers and DATA, as they are on disk."""
    in_stream_order: str
    """Of what subscribers were handed: the same without envelopes, each message once."""


class JournalService:
    """``twistd fyrehose-journal`` as a process of its own."""

    def __init__(self, directory: Path, backbone: str) -> None:
        self.directory = directory
        self.log = directory / "journal.log"
        self._backbone = backbone
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def kept(self) -> Path:
        """The directory of the stream's journal."""
        return self.directory / "kept" / directory_name(STREAM)

    def start(self) -> None:
        twistd = str(Path(sys.executable).parent / "twistd")
        options = f"--backbone={self._backbone}", "--directory=kept", "--name=flights", "--from=1"
        command = [twistd, "-n", "--pidfile=", f"--logfile={self.log.name}", "fyrehose-journal", *options]
        self._process = subprocess.Popen(command, cwd=self.directory)

    def kill(self) -> None:
        """Kill it with -9; it may be dead already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> str:
        """Stop it in order, and return what it says of its work."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        return re.findall(r"JournalService#info\] (.* messages came.*)", self.log.read_text())[-1]

    def reader(self) -> JournalReader:
        """Return a reader, as any process on this machine could have one. :raises JournalError: if it is too early."""
        try:
            return open_reader(self.kept)
        except FileNotFoundError as error:
            raise JournalError("there is no journal yet") from error

    def next(self) -> int:
        """Return the watermark: the first number that is not durable yet."""
        try:
            reader = self.reader()
        except JournalError:
            return 1
        bounds = reader.bounds(0)
        reader.close()
        return 1 if bounds is None else bounds.next

    async def whole(self, reactor: Any, last: int) -> None:
        """Wait until everything up to ``last`` is durable, or known to be lost."""
        until = time.monotonic() + PATIENCE
        while self.next() <= last:
            if time.monotonic() > until:
                raise SystemExit(f"demo: {self.directory} is whole up to {self.next() - 1:,} only, not up to {last:,}")
            await deferLater(reactor, 0.2)

    def contents(self, last: int) -> Contents:
        """Read everything up to ``last`` and digest it."""
        reader = self.reader()
        bounds = reader.bounds(0)
        assert bounds is not None
        kept, handed_over, records = hashlib.sha256(), hashlib.sha256(), 0
        seen: set[int] = set()
        for block in reader.read(0, bounds.first, last):
            for record in block.records():
                records += 1
                kept.update(b"%d:%b" % (record.sequence, record.payload))
                envelope = unwrap(record.payload)
                if envelope is not None and envelope.counter not in seen:
                    seen.add(envelope.counter)
                    handed_over.update(b"%d:%b" % (record.sequence, record.payload[ENVELOPE_SIZE:]))
        lost = sum(end - first + 1 for first, end in reader.losses(0, bounds.first, last))
        reader.close()
        return Contents(bounds, records, lost, kept.hexdigest(), handed_over.hexdigest())
