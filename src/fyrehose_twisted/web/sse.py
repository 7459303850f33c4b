"""The format of server-sent events (HTML standard, "Server-sent events"): writing it, and taking it apart."""

from __future__ import annotations

import re
from typing import NamedTuple

from fyrehose_twisted.errors import RemoteError

MAX_FRAME = 2**20
"""Bytes of one event on a stream that are taken in."""

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class MalformedStream(RemoteError):
    """What a node sends is no stream of events."""


class Frame(NamedTuple):
    """One event of a stream, or a comment."""

    event: str
    """``message`` where the stream does not say, ``comment`` for a comment, ``position`` for a bare id too."""
    id: str
    """The last id on the stream."""
    data: str


def frame(data: bytes, id: bytes, event: bytes = b"") -> bytes:
    """Return an event.

    :param data: one line.
    :param id: with this a client that comes back says what it has.
    """
    kind = b"event: %s\n" % event if event else b""
    return b"%sdata: %s\nid: %s\n\n" % (kind, data, id)


def position(id: bytes) -> bytes:
    """Return an event named ``position``, with the id up to which the client has everything.

    It has data, too: some clients take every id for an event, and its data for JSON.
    """
    return b'event: position\ndata: {"position":"%b"}\nid: %b\n\n' % (id, id)


def comment(text: bytes) -> bytes:
    """Return a line that clients ignore, or take for a sign of life.

    No empty line follows: once a stream has had an id, some clients take each of those for an event without data.
    """
    return b": %b\n" % text


class FrameReader:
    """Takes a stream apart."""

    def __init__(self) -> None:
        self._pieces = [b""]
        self._rest = 0
        self._id = ""
        self._fields: dict[str, list[str]] = {}
        self._size = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now.

        :raises BadStream: if one is longer than :data:`MAX_FRAME`, or not UTF-8.
        """
        frames: list[Frame] = []
        self._pieces.append(data)
        self._rest += len(data)
        if b"\n" not in data and b"\r" not in data and not self._pieces[0].endswith(b"\r"):
            parts = []  # What has no line end is not looked at again and again.
        else:
            parts = _LINE_END.split(b"".join(self._pieces))
            self._pieces = [parts.pop()]
            self._rest = len(self._pieces[0])
        for part in parts:
            self._size += len(part)
            try:
                self._line(part.decode("utf-8"), frames)
            except UnicodeDecodeError:
                raise MalformedStream("a stream of events is not UTF-8") from None
        if self._size + self._rest > MAX_FRAME:
            raise MalformedStream(f"an event on a stream is longer than {MAX_FRAME:,} bytes")
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
