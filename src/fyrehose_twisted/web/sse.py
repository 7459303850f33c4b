"""Encoding and parsing of server-sent events (HTML standard, section "Server-sent events")."""

from __future__ import annotations

import re
from typing import NamedTuple

from fyrehose_twisted.errors import RemoteError

MAX_FRAME = 2**20
"""Limit of the bytes of one event."""

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class MalformedStream(RemoteError):
    """The data is not a valid event stream."""


class Frame(NamedTuple):
    """One event or comment of a stream."""

    event: str
    """Event type: ``message`` by default, ``comment`` for a comment, ``position`` for an id without data."""
    id: str
    """Last id on the stream so far."""
    data: str


def frame(data: bytes, id: bytes, event: bytes = b"") -> bytes:
    """Encode an event.

    :param data: one line of data.
    :param id: id with which a client resumes after this event.
    """
    kind = b"event: %s\n" % event if event else b""
    return b"%sdata: %s\nid: %s\n\n" % (kind, data, id)


def position(id: bytes) -> bytes:
    """Encode a ``position`` event with the id up to which the client has received everything.

    It has JSON data, as some clients treat every id as an event and parse its data.
    """
    return b'event: position\ndata: {"position":"%b"}\nid: %b\n\n' % (id, id)


def comment(text: bytes) -> bytes:
    """Encode a comment, which clients ignore or treat as a keepalive.

    No empty line follows. After an id, some clients treat each empty line as an event without data.
    """
    return b": %b\n" % text


class FrameReader:
    """Incremental parser of an event stream."""

    def __init__(self) -> None:
        self._pieces = [b""]
        self._rest = 0
        self._id = ""
        self._fields: dict[str, list[str]] = {}
        self._size = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Parse input; return the frames that are now complete.

        :raises MalformedStream: if a frame is longer than :data:`MAX_FRAME` or not UTF-8.
        """
        frames: list[Frame] = []
        self._pieces.append(data)
        self._rest += len(data)
        if b"\n" not in data and b"\r" not in data and not self._pieces[0].endswith(b"\r"):
            parts = []  # Do not rescan data without a line end.
        else:
            parts = _LINE_END.split(b"".join(self._pieces))
            self._pieces = [parts.pop()]
            self._rest = len(self._pieces[0])
        for part in parts:
            self._size += len(part)
            try:
                self._line(part.decode("utf-8"), frames)
            except UnicodeDecodeError:
                raise MalformedStream("the event stream is not UTF-8") from None
        if self._size + self._rest > MAX_FRAME:
            raise MalformedStream(f"an event is longer than {MAX_FRAME:,} bytes")
        return frames

    def _line(self, line: str, frames: list[Frame]) -> None:
        if not line:
            self._dispatch(frames)
        elif line.startswith(":"):
            frames.append(Frame("comment", self._id, line[1:].removeprefix(" ")))
        else:
            name, _, value = line.partition(":")
            self._fields.setdefault(name, []).append(value.removeprefix(" "))

    def _dispatch(self, frames: list[Frame]) -> None:
        fields, self._fields, self._size = self._fields, {}, 0
        if "id" in fields:
            self._id = fields["id"][-1]
        if "data" in fields:
            frames.append(Frame(fields.get("event", ["message"])[-1], self._id, "\n".join(fields["data"])))
        elif "id" in fields:
            frames.append(Frame("position", self._id, ""))
