"""The page that shows a tree growing, breaking and healing: one HTML file that needs nothing else."""

from __future__ import annotations

import json
from importlib.resources import files
from string import Template
from typing import Any, TextIO

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.report.trace_parser import OF_A_STREAM, OF_THE_NETWORK, Change
from fyrehose_twisted.experiments.report.trace_replay import Recording
from fyrehose_twisted.freenet.wire.location import key_location

MOST_NODES = 5_000
"""Of a network on a page; with more, nothing could be told apart on the ring."""

MOST_LINKS = 200_000
"""Between them at the start."""

MOST_CHANGES = 100_000
"""On a page, of the network and of all streams that are on it; a packet and all its deliveries count once."""

SCRIPTS = ("replay.js", "ring.js", "timeline.js", "listing.js", "page.js")
"""What the page runs, in this order."""

_WHATS = (*OF_A_STREAM, *OF_THE_NETWORK)
# Made once: json.dumps with options makes a new one for each call. It also refuses NaN, which Python reads.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class _Page(Template):
    # CSS and script have both $ and single @.
    delimiter = "@@"


def write_page(recording: Recording, key: bytes, file: TextIO) -> None:
    """Write the page of a recording. It opens with one stream, and has as many of the others as there is room for.

    What is written is ASCII, and nothing in the recording can become markup or script.

    :param key: of the stream that it opens with.
    :param file: where the page goes; nothing is written if something is wrong.
    :raises ConfigurationError: if the recording has no such stream, or is too large for a page.
    """
    data = _ENCODER.encode(_shown(recording, key)).replace("<", "\\u003c")
    parts = files("fyrehose_twisted.experiments.report")
    script = "\n".join(parts.joinpath(name).read_text("ascii") for name in SCRIPTS)
    style = parts.joinpath("page.css").read_text("ascii")
    file.write(_Page(parts.joinpath("page.html").read_text("ascii")).substitute(STYLE=style, DATA=data, SCRIPT=script))


def _shown(recording: Recording, key: bytes) -> dict[str, Any]:
    nodes, links = len(recording.locations), len(recording.links)
    if nodes > MOST_NODES:
        raise ConfigurationError(
            f"the recording has {nodes:,} nodes, and a page can show {MOST_NODES:,}; draw one moment of it as SVG, "
            "or record a smaller network"
        )
    if links > MOST_LINKS:
        raise ConfigurationError(
            f"the recording has {links:,} links, and a page can show {MOST_LINKS:,}; record a network of a lower degree"
        )
    if key not in recording.streams:
        raise ConfigurationError(f"the trace has no stream with key {key.hex()}")
    room = MOST_CHANGES - len(recording.network)
    streams, left_out = [], []
    for one in (key, *(other for other in recording.streams if other != key)):
        stream = _stream(recording, one)
        size = len(stream["changes"]) + len(stream["packets"])
        if size <= room:
            room -= size
            streams.append(stream)
        elif one == key:
            raise ConfigurationError(
                f"stream {key.hex()[:12]} and the network have {size + len(recording.network):,} changes, and a page "
                f"can show {MOST_CHANGES:,}; record a shorter time"
            )
        else:
            left_out.append(one.hex())
    return {
        # JavaScript would round a large number, and the page says which experiment this was.
        "seed": None if recording.seed is None else str(recording.seed),
        "policy": [[name, json.dumps(value)] for name, value in recording.policy.items()],
        "finish": recording.finish,
        "locations": recording.locations,
        "links": [node for link in sorted(recording.links) for node in link],
        "whats": _WHATS,
        "network": [_row(change) for change in recording.network],
        "streams": streams,
        "left_out": left_out,
    }


def _stream(recording: Recording, key: bytes) -> dict[str, Any]:
    """Return the changes of a stream, and of each packet who published it, how many got it, and the last one when."""
    packets: list[list[Any]] = []
    latest: dict[int, list[Any]] = {}
    changes = []
    for change in recording.streams[key]:
        if change.what not in ("published", "delivered"):
            changes.append(_row(change))
            continue
        number = int(change.value or 0)
        publisher = change.node if change.what == "published" else -1
        packet = latest.get(number)
        # Some get a packet before its publisher hears that it is published.
        if packet is None or (publisher >= 0 and packet[2] >= 0):
            packet = latest[number] = [change.line, change.t, publisher, str(number), 0, change.t]
            packets.append(packet)
        elif publisher >= 0:
            packet[2] = publisher
        if change.what == "delivered":
            packet[4] += 1
            packet[5] = change.t
    return {"key": key.hex(), "location": key_location(key), "changes": changes, "packets": packets}


def _row(change: Change) -> list[Any]:
    value = -1 if change.value is None else change.value
    return [change.line, change.t, _WHATS.index(change.what), change.node, value]
