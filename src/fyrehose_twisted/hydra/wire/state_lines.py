"""Snapshots of application state among the lines of a term.

The leader relays a snapshot as RECVs with a command of their own, so it has a place in the order of the lines: it is
the state before its first line. IRC never carries this command, and a node of an earlier version delivers such a line
like any other.

    :hydra HYDRA STATE NAME INDEX COUNT CHECKSUM DATA

DATA is one part of the compressed state in Base64, CHECKSUM the CRC-32 of the whole state. ``HYDRA WANT`` in a SEND
asks for a snapshot.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, b64encode
from typing import NamedTuple

from fyrehose_twisted.errors import UnencodableMessage

STATE_COMMAND = b"HYDRA"
"""Command of the lines by which nodes exchange state."""
WANT = STATE_COMMAND + b" WANT"
"""Line of a SEND that asks the leader for a snapshot."""
MAX_STATE = 1_048_576
"""Largest state in bytes, uncompressed."""
_PART = 684
"""Bytes of compressed state in one line, which then fits into a RECV."""
_MAX_PARTS = 1_600
"""Largest number of lines of a snapshot; incompressible state of the largest size fits."""
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_LINE = re.compile(
    rb":hydra HYDRA STATE ([\w.-]{1,64}) ([0-9]{1,4}) ([0-9]{1,4}) ([0-9a-f]{8}) ([A-Za-z0-9+/=]{0,1024})"
)


class StatePart(NamedTuple):
    """One line of a snapshot."""

    name: str
    number: int
    """Number of the part, from 0."""
    total: int
    """Number of parts."""
    checksum: str
    data: bytes
    """Part of the compressed state."""


class Snapshot(NamedTuple):
    """State of one part of the application."""

    name: str
    state: bytes


def encode_snapshot(snapshot: Snapshot) -> list[bytes]:
    """Return the lines of a snapshot.

    :raises UnencodableMessage: if the name is not a word of letters, digits, ``_``, ``.`` and ``-``, or the state has
        more than :data:`MAX_STATE` bytes.
    """
    name, state = snapshot
    if not _NAME.fullmatch(name):
        raise UnencodableMessage(f"{name!r} is not a name for state")
    if len(state) > MAX_STATE:
        raise UnencodableMessage(f"the state of {name} has {len(state):,} bytes; the limit is {MAX_STATE:,}")
    data = zlib.compress(state)
    parts = [data[start : start + _PART] for start in range(0, len(data), _PART)]
    head = b":hydra %s STATE %s" % (STATE_COMMAND, name.encode())
    return [
        b"%s %d %d %08x %s" % (head, index, len(parts), zlib.crc32(state), b64encode(part))
        for index, part in enumerate(parts)
    ]


def decode_part(line: bytes) -> StatePart | None:
    """Return the part of a snapshot in a line; ``None`` if it is another line, or a malformed one."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    index, count = int(found[2]), int(found[3])
    try:
        data = b64decode(found[5], validate=True)
    except ValueError:
        return None
    return StatePart(found[1].decode(), index, count, found[4].decode(), data) if index < count <= _MAX_PARTS else None


class SnapshotAssembler:
    """Assembler of the parts of one snapshot at a time; parts arrive in order, or the snapshot is given up."""

    def __init__(self) -> None:
        self._parts: list[StatePart] = []

    def feed(self, part: StatePart) -> Snapshot | None:
        """Return the snapshot that a part completes.

        :returns: ``None`` if more parts are missing, or the snapshot is damaged.
        """
        parts = self._parts
        if part.number == 0:
            parts.clear()
        before = (part.name, len(parts), *parts[0][2:4]) if parts else (part.name, 0, *part[2:4])
        if part[:4] != before:
            parts.clear()
            return None
        parts.append(part)
        if len(parts) < part.total:
            return None
        data = b"".join(part.data for part in parts)
        parts.clear()
        inflate = zlib.decompressobj()
        try:
            state = inflate.decompress(data, MAX_STATE)
        except zlib.error:
            return None
        if not inflate.eof or inflate.unused_data or f"{zlib.crc32(state):08x}" != part.checksum:
            return None
        return Snapshot(part.name, state)

    def reset(self) -> None:
        """Give up the current snapshot."""
        self._parts.clear()
