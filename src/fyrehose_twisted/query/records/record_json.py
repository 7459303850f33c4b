"""Records as they are sent. Each is put into a format once, however many want it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.repeat_marking import Marks
from fyrehose_twisted.web.request import parse_json
from fyrehose_twisted.web.response import encode_json

StripFraming = Callable[[str, list[bytes]], list[bytes]]
"""Given the URI of a stream and payloads of it, returns them without what their protocol put around them."""

NOT_JSON: Any = object()
"""The document of a record that has none."""

_LINES = bytes.maketrans(b"\r\n", b"  ")


class RecordView:
    """One record.

    :ivar position: the sequence number; where those wrap it goes on.
    :ivar payload: what the application said, without what its protocol put around it.
    :ivar is_repeat: whether the message was published before.
    """

    __slots__ = (
        "_document",
        "_texts",
        "epoch",
        "is_repeat",
        "payload",
        "position",
        "received_at",
        "sequence",
        "stream",
    )

    def __init__(
        self, stream: bytes, epoch: int, position: int, sequence: int, received_at: int, payload: bytes
    ) -> None:
        self.stream = stream
        self.epoch = epoch
        self.position = position
        self.sequence = sequence
        self.received_at = received_at
        self.payload = payload
        self.is_repeat = False
        self._document: Any = None
        self._texts: list[bytes | None] = [None, None]

    @property
    def document(self) -> Any:
        """What is written in the payload, if it is a JSON text; else :data:`NOT_JSON`."""
        if self._document is None:
            try:
                # ``None`` is a document, too: it is kept as what no other is.
                self._document = (parse_json(self.payload),)
            except ValueError:
                self._document = (NOT_JSON,)
        return self._document[0]

    def text(self, plain: bool) -> bytes:
        """Return the record as JSON on one line.

        :param plain: give the payload as ``data``, which is base64, whatever it is.
        """
        text = self._texts[plain]
        if text is None:
            text = self._texts[plain] = self._render(plain)
        return text

    def _render(self, plain: bool) -> bytes:
        head = b'{"stream":%b,"epoch":%d,"sequence":%d,"received_at":%d,' % (
            self.stream,
            self.epoch,
            self.sequence,
            self.received_at,
        )
        if self.position != self.sequence:
            head += b'"position":%d,' % self.position
        if self.is_repeat:
            head += b'"repeat":true,'
        if not plain:
            if self.document is not NOT_JSON:
                # As it was written, so that no number loses digits on the way. In JSON line ends only separate.
                return head + b'"json":%b}' % self.payload.translate(_LINES)
            try:
                return head + b'"text":%b}' % encode_json(self.payload.decode())
            except UnicodeDecodeError:
                pass
        return head + b'"data":"%b"}' % b64encode(self.payload)


def record_views(block: Block, strip_framing: StripFraming, marks: Marks | None = None) -> Iterator[RecordView]:
    """Yield the records of a block.

    :param marks: which of them are repeats; ``None`` if none is known to be.
    """
    stream = encode_json(block.stream)
    payloads = strip_framing(block.stream, block.payloads())
    columns = block.positions.tolist(), block.sequences.tolist(), block.times.tolist(), payloads
    for row, (position, sequence, received_at, payload) in enumerate(zip(*columns, strict=True)):
        item = RecordView(stream, block.epoch, position, sequence, received_at, payload)
        if marks is not None and marks[row]:
            item.is_repeat = True
        yield item


def rows_within(block: Block, low: int, max_rows: int, size: int) -> int:
    """Return the row after those from ``low`` on that are at most ``max_rows``, and about ``size`` bytes; at least
    one."""
    last = min(low + max_rows, len(block))
    limit = int(block.offsets[low]) + size
    return min(last, max(low + 1, int(block.offsets.searchsorted(limit, "right")) - 1))
