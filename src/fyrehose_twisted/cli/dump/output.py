"""Output of ``fyrehose dump``: lines of text or JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, BinaryIO

from fyrehose_twisted.cli.dump.capture_file import CapturedFrame, read_capture
from fyrehose_twisted.cli.dump.live import LiveCapture
from fyrehose_twisted.cli.dump.ports import port_map
from fyrehose_twisted.cli.dump.traffic import Line, TrafficReader, endpoints
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.process.terminal import print_hint, sanitize
from fyrehose_twisted.wording import pluralize

_MAX_SECONDS = 253_402_300_799
"""The last second of the year 9999, after which Python has no dates."""


def dump(options: argparse.Namespace) -> int:
    """Print the frames of a capture or interface and return the exit status.

    :raises InvalidCapture: if the file is not a capture, or is damaged or cut; then after the frames before.
    :raises CaptureRefused: if the system does not let this process capture.
    """
    reader = TrafficReader(port_map(dict(options.port)), with_data=options.data, gaps=options.gaps)
    write = format_json if options.json else format_line
    with ExitStack() as stack:
        live = None
        if options.interface is not None:
            live = LiveCapture(options.interface)
            stack.callback(live.close)
            print_hint(f"capturing on {options.interface}; interrupt to stop")
        frames: Iterable[CapturedFrame] = live or read_capture(_open(options.file, stack))
        try:
            for line in _limited(_lines(reader, frames, live), options.count):
                print(write(line))
        except KeyboardInterrupt:
            if live is None:
                raise
        finally:
            for line in reader.finish():
                print(write(line))
            if live is not None and (dropped := live.dropped()):
                print(f"fyrehose: the kernel dropped {pluralize(dropped, 'frame')}", file=sys.stderr)
    return 0


def _open(path: str, stack: ExitStack) -> BinaryIO:
    return sys.stdin.buffer if path == "-" else stack.enter_context(open(path, "rb"))


def _lines(reader: TrafficReader, frames: Iterable[CapturedFrame], live: LiveCapture | None) -> Iterator[Line]:
    for frame in frames:
        yield from reader.read(frame)
        if live is not None and live.is_idle():
            sys.stdout.flush()


def _limited(lines: Iterator[Line], count: int | None) -> Iterator[Line]:
    for line in lines:
        yield line
        if count is not None and line.note is None:
            count -= 1
            if not count:
                return


def format_line(line: Line) -> str:
    """Return a line of text."""
    if line.note is not None:
        assert line.destination is not None, "a note is on a receiver's stream"
        return f"# {line.note} ({line.protocol}, to {format_address(line.destination)})"
    parts = [format_time(line.time, "%H:%M:%S"), endpoints(line), line.protocol]
    if line.description is None:
        parts.append(f"not understood: {line.problem}")
    else:
        parts.append(f"{line.description.kind} {line.description.text}".rstrip())
    return sanitize(" ".join(filter(None, parts)))


def format_json(line: Line) -> str:
    """Return a line of JSON."""
    found: dict[str, Any] = {} if line.note and not line.time else {"time": format_time(line.time, "%Y-%m-%dT%H:%M:%S")}
    for name, address in (("source", line.source), ("destination", line.destination)):
        if address is not None:
            found[name] = format_address(address)
    if line.protocol:
        found["protocol"] = line.protocol
    if line.note is not None:
        found["note"] = line.note
    elif line.description is None:
        found["problem"] = line.problem
    else:
        kind, text, fields = line.description
        found |= {"kind": kind, "text": text, "fields": fields}
    return json.dumps(found)


def format_time(nanoseconds: int, layout: str) -> str:
    """Return a time in UTC, with microseconds."""
    seconds, rest = divmod(nanoseconds, 10**9)
    when = datetime.fromtimestamp(min(max(seconds, 0), _MAX_SECONDS), UTC)
    return f"{when.strftime(layout)}.{rest // 1_000:06}" + ("Z" if "T" in layout else "")
