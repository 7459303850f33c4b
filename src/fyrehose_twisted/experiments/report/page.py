"""Self-contained HTML page that replays how the trees of a recording grow, break and heal."""

from __future__ import annotations

import json
from importlib.resources import files
from string import Template
from typing import Any, TextIO

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.report.trace_parser import NETWORK_CHANGES, STREAM_CHANGES, TraceChange
from fyrehose_twisted.experiments.report.trace_replay import Recording
from fyrehose_twisted.freenet.wire.location import key_location

MAX_PAGE_NODES = 5_000
"""Maximum number of nodes on a page. More could not be told apart on the ring."""

MAX_PAGE_LINKS = 200_000
"""Maximum number of initial links on a page."""

MAX_PAGE_CHANGES = 100_000
"""Maximum number of changes of the network and the streams on a page. A packet counts once with its deliveries."""

SCRIPTS = ("replay.js", "ring.js", "timeline.js", "listing.js", "page.js")
"""Scripts of the page, in order."""

_CHANGE_KINDS = (*STREAM_CHANGES, *NETWORK_CHANGES)
# json.dumps with options would create an encoder for each call. This one also refuses NaN.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class _PageTemplate(Template):
    # CSS and scripts contain $ and single @.
    delimiter = "@@"


def write_page(recording: Recording, key: bytes, file: TextIO) -> None:
    """Write the page of a recording, with one stream selected and as many of the others as fit.

    The output is ASCII. Nothing in the recording can become markup or script.

    :param key: key of the selected stream.
    :param file: output file. Nothing is written if an error is raised.
    :raises ConfigurationError: if the recording has no such stream, or is too large for a page.
    """
    data = _ENCODER.encode(_page_data(recording, key)).replace("<", "\\u003c")
    parts = files("fyrehose_twisted.experiments.report")
    script = "\n".join(parts.joinpath(name).read_text("ascii") for name in SCRIPTS)
    style = parts.joinpath("page.css").read_text("ascii")
    file.write(
        _PageTemplate(parts.joinpath("page.html").read_text("ascii")).substitute(STYLE=style, DATA=data, SCRIPT=script)
    )


def _page_data(recording: Recording, key: bytes) -> dict[str, Any]:
    nodes, links = len(recording.locations), len(recording.links)
    if nodes > MAX_PAGE_NODES:
        raise ConfigurationError(
            f"the recording has {nodes:,} nodes, but a page can show {MAX_PAGE_NODES:,}; draw it as SVG, or record a "
            "smaller network"
        )
    if links > MAX_PAGE_LINKS:
        raise ConfigurationError(
            f"the recording has {links:,} links, but a page can show {MAX_PAGE_LINKS:,}; record a network of a "
            "lower degree"
        )
    if key not in recording.streams:
        raise ConfigurationError(f"the trace has no stream with key {key.hex()}")
    room = MAX_PAGE_CHANGES - len(recording.network)
    streams, left_out = [], []
    for candidate in (key, *(other for other in recording.streams if other != key)):
        stream = _stream_data(recording, candidate)
        size = len(stream["changes"]) + len(stream["packets"])
        if size <= room:
            room -= size
            streams.append(stream)
        elif candidate == key:
            raise ConfigurationError(
                f"stream {key.hex()[:12]} and the network have {size + len(recording.network):,} changes, but a page "
                f"can show {MAX_PAGE_CHANGES:,}; record a shorter time"
            )
        else:
            left_out.append(candidate.hex())
    return {
        # A string, since JavaScript would round a large seed.
        "seed": None if recording.seed is None else str(recording.seed),
        "policy": [[name, json.dumps(value)] for name, value in recording.policy.items()],
        "finish": recording.finish,
        "locations": recording.locations,
        "links": [node for link in sorted(recording.links) for node in link],
        "whats": _CHANGE_KINDS,
        "network": [_change_row(change) for change in recording.network],
        "streams": streams,
        "left_out": left_out,
    }


def _stream_data(recording: Recording, key: bytes) -> dict[str, Any]:
    """Return the changes of a stream, and the publisher, deliveries and last delivery of each packet."""
    packets: list[list[Any]] = []
    latest: dict[int, list[Any]] = {}
    changes = []
    for change in recording.streams[key]:
        if change.kind not in ("published", "delivered"):
            changes.append(_change_row(change))
            continue
        number = int(change.value or 0)
        publisher = change.node if change.kind == "published" else -1
        packet = latest.get(number)
        # Deliveries may precede the confirmation to the publisher.
        if packet is None or (publisher >= 0 and packet[2] >= 0):
            packet = latest[number] = [change.line, change.t, publisher, str(number), 0, change.t]
            packets.append(packet)
        elif publisher >= 0:
            packet[2] = publisher
        if change.kind == "delivered":
            packet[4] += 1
            packet[5] = change.t
    return {"key": key.hex(), "location": key_location(key), "changes": changes, "packets": packets}


def _change_row(change: TraceChange) -> list[Any]:
    value = -1 if change.value is None else change.value
    return [change.line, change.t, _CHANGE_KINDS.index(change.kind), change.node, value]
