"""JSON encoding of records. Each record is encoded once, however many clients receive it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from fyrehose_twisted.framing import StripFraming
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.repeat_marking import Marks
from fyrehose_twisted.web.request import parse_json
from fyrehose_twisted.web.response import encode_json

NOT_JSON: Any = object()
"""Document of a record whose payload is not JSON."""

_LINES = bytes.maketrans(b"\r\n", b"  ")


class RecordView:
    """One record with its cached encodings.

    :ivar position: sequence number without its wrap-around.
    :ivar payload: payload without the protocol's framing.
    :ivar key: key of the message; ``None`` if it has none.
    :ivar is_repeat: whether the message is a repeat.
    :ivar is_refused: whether the record must not be shown, because it does not open.
    """

    __slots__ = (
        "_document",
        "_texts",
        "epoch",
        "is_refused",
        "is_repeat",
        "key",
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
        self.key: bytes | None = None
        self.is_repeat = False
        self.is_refused = False
        self._document: Any = None
        self._texts: list[bytes | None] = [None, None]

    @property
    def document(self) -> Any:
        """Parsed payload if it is JSON; otherwise :data:`NOT_JSON`."""
        if self._document is None:
            try:
                # Wrapped in a tuple, as ``None`` is a valid document.
                self._document = (parse_json(self.payload),)
            except ValueError:
                self._document = (NOT_JSON,)
        return self._document[0]

    def text(self, plain: bool) -> bytes:
        """Return the record as one line of JSON.

        :param plain: whether to encode any payload as base64 in ``data``.
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
        if self.key is not None:
            head += self._render_key(self.key, plain)
        if not plain:
            if self.document is not NOT_JSON:
                # Verbatim, so that numbers keep their digits. Line ends in JSON are only whitespace.
                return head + b'"json":%b}' % self.payload.translate(_LINES)
            try:
                return head + b'"text":%b}' % encode_json(self.payload.decode())
            except UnicodeDecodeError:
                pass
        return head + b'"data":"%b"}' % b64encode(self.payload)

    def _render_key(self, key: bytes, plain: bool) -> bytes:
        if not plain:
            try:
                return b'"key":%b,' % encode_json(key.decode())
            except UnicodeDecodeError:
                pass
        return b'"key_data":"%b",' % b64encode(key)


def record_views(block: Block, strip_framing: StripFraming, marks: Marks | None = None) -> Iterator[RecordView]:
    """Yield views of the records in a block.

    :param marks: mask of the repeats; ``None`` if there are none.
    """
    stream = encode_json(block.stream)
    payloads, keys = strip_framing(block.stream, block.payloads())
    columns = block.positions.tolist(), block.sequences.tolist(), block.times.tolist(), payloads
    for row, (position, sequence, received_at, payload) in enumerate(zip(*columns, strict=True)):
        item = RecordView(stream, block.epoch, position, sequence, received_at, b"" if payload is None else payload)
        item.is_refused = payload is None
        if marks is not None and marks[row]:
            item.is_repeat = True
        if keys is not None:
            item.key = keys[row]
        yield item


def rows_within(block: Block, low: int, max_rows: int, size: int) -> int:
    """Return the end of the rows from ``low`` within ``max_rows`` and about ``size`` bytes, but at least one row."""
    last = min(low + max_rows, len(block))
    limit = int(block.offsets[low]) + size
    return min(last, max(low + 1, int(block.offsets.searchsorted(limit, "right")) - 1))
