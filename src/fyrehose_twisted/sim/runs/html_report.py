"""Self-contained HTML page that shows one simulated run as a space-time diagram."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import merge
from importlib.resources import files
from typing import Any, NamedTuple, TextIO

ALWAYS_KEPT = frozenset({"fault", "start", "stop", "pause", "resume", "broken", "end"})
"""Kinds of entries that are never omitted, because the others are unintelligible without them."""

MAX_SECONDS = 1e9
"""Maximum duration of a run in seconds, on which the page relies."""

BUCKETS = 1024
"""Maximum number of time buckets of the overview."""

DATA_PLACEHOLDER = "@TRACE@"
"""Placeholder of the data in the template."""


# Shared, because json.dumps with options creates an encoder per call. Rejects NaN, which Python's parser accepts.
ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class PageEntry(NamedTuple):
    """Entry of the page. Entries sort in the order of the trace."""

    number: int
    t: float
    text: str


@dataclass
class MessageDensity:
    """Histogram of sent and dropped messages over time, in constant memory. Includes entries omitted from the page.

    :ivar width: seconds of one bucket; doubled whenever the run exceeds the buckets.
    :ivar send: messages sent in each bucket.
    :ivar drop: messages dropped in each bucket.
    """

    width: float = 0.001
    send: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    drop: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, counts: list[int], t: float) -> None:
        """Count a message in :attr:`send` or :attr:`drop` at ``t`` seconds after the start of the run."""
        while t >= self.width * BUCKETS:
            self.width *= 2
            for halved in (self.send, self.drop):
                halved[:] = [*map(sum, zip(halved[::2], halved[1::2], strict=True)), *[0] * (BUCKETS // 2)]
        counts[int(t / self.width)] += 1


def write_page(trace: Iterable[str], out: TextIO, *, limit: int = 150_000) -> None:
    """Write the page of one run.

    Memory is bounded by ``limit`` and by the number of faults, starts, stops and pauses. Of all other entries the
    newest are kept, because a run ends where an invariant breaks; the page states what it omits. The output is ASCII,
    and no text of the trace can become markup or script.

    :param trace: lines of the simulator's trace, one JSON object each; empty lines are ignored.
    :param out: output stream; nothing is written unless the whole trace is readable.
    :param limit: maximum number of ordinary entries, 1 or more.
    :raises ValueError: if a line is malformed (the message names it), the trace is empty, or ``limit`` is below 1.
    """
    if limit < 1:
        raise ValueError(f"a limit of {limit} entries leaves nothing to show")
    run: str | None = None
    newest: deque[PageEntry] = deque(maxlen=limit)
    always: list[PageEntry] = []
    density = MessageDensity()
    left_out = 0
    left_out_until = 0.0
    for number, line in enumerate(trace, 1):
        if not line.strip():
            continue
        try:
            kind, t, text = _read(line, first=run is None)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} of the trace: {error}") from None
        if run is None:
            run = text
        elif kind in ALWAYS_KEPT:
            always.append(PageEntry(number, t, text))
        else:
            if kind == "send":
                density.add(density.send, t)
            elif kind == "drop":
                density.add(density.drop, t)
            if len(newest) == limit:
                left_out += 1
                left_out_until = max(left_out_until, newest[0].t)
            newest.append(PageEntry(number, t, text))
    if run is None:
        raise ValueError("the trace is empty")
    before, after = files("fyrehose_twisted.sim.runs").joinpath("page.html").read_text("ascii").split(DATA_PLACEHOLDER)
    out.write(before)
    out.write(f'{{"run":{run},\n"left_out":{left_out},"left_out_until":{left_out_until},\n')
    out.write(f'"density":{_embed(vars(density))},\n"entries":[')
    between = "\n"
    for kept in merge(always, newest):
        out.write(between + kept.text)
        between = ",\n"
    out.write("\n]}")
    out.write(after)


def _read(line: str, *, first: bool) -> tuple[str, float, str]:
    """Return kind, time and text of one line. :raises ValueError: or RecursionError, if it is malformed."""
    entry = json.loads(line)
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        raise ValueError("not an object with a kind")
    kind = entry["kind"]
    if (kind == "run") != first:
        raise ValueError("the first line, and only the first, must be a run")
    if first:
        nodes = entry.get("nodes")
        if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
            raise ValueError("the run does not list the names of its nodes")
        # As text, because JavaScript would round a large seed, and the page shows the replay command.
        return kind, 0.0, _embed({**entry, "seed": str(entry.get("seed"))})
    t = entry.get("t")
    if isinstance(t, bool) or not isinstance(t, int | float) or not 0 <= t <= MAX_SECONDS:
        raise ValueError(f"t is not a time from 0 to {MAX_SECONDS:.0f} s")
    return kind, float(t), _embed(entry)


def _embed(value: Any) -> str:
    """Return JSON that is safe in a script element: ASCII, without the character that could end the element."""
    return ENCODER.encode(value).replace("<", "\\u003c")
