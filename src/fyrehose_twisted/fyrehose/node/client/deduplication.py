"""Removal of envelopes, seals and repeats before delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fyrehose_twisted.fyrehose.events import ClientCounters, MessageColumns, Messages
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import SendQueue
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MessageRun
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, Envelope, keyed_envelope_runs
from fyrehose_twisted.fyrehose.wire.message_key import may_have_keys, split_key
from fyrehose_twisted.interfaces import IPayloadOpener
from fyrehose_twisted.repeats import EnvelopeRun as EnvelopeRun
from fyrehose_twisted.repeats import RepeatDetector
from fyrehose_twisted.sealing.outcome import OpenedPayload, Refusal


class Deduplicator:
    """Filter that removes envelopes, seals and repeats from runs of messages.

    :param send_queue: send queue, which is notified of its own messages in the complete part of the stream.
    :param raw: deliver messages unchanged.
    :param opener: opens sealed payloads; ``None`` to deliver payloads as they are.
    :param on_refused: called with the number of a message that is not delivered, and the reason.
    :ivar repeats: detector with the envelopes received lately.
    """

    def __init__(
        self,
        send_queue: SendQueue,
        counters: ClientCounters,
        *,
        raw: bool,
        opener: IPayloadOpener | None = None,
        on_refused: Callable[[int, Refusal], object] = lambda number, reason: None,
    ) -> None:
        self._send_queue = send_queue
        self._counters = counters
        self._raw = raw
        self._opener = opener
        self._on_refused = on_refused
        self.repeats = RepeatDetector()

    def deliverable(self, run: MessageRun) -> Messages:
        """Return the messages of ``run`` to deliver to the application."""
        numbers = range(run.first, run.end)
        if self._raw:
            return Messages([MessageColumns(numbers, run.times, run.messages, 0)])
        columns: list[MessageColumns] = []
        row = 0
        runs, may_be_keyed = keyed_envelope_runs(run.messages)
        if len(runs) == 1:
            part, envelope = MessageColumns(numbers, run.times, run.messages, 0), runs[0][0]
            return Messages(self._deliverable(part, envelope, may_be_keyed))
        for envelope, count in runs:
            rows = slice(row, row + count)
            row += count
            part = MessageColumns(numbers[rows], run.times[rows], run.messages[rows], 0)
            columns += self._deliverable(part, envelope, may_be_keyed)
        return Messages(columns)

    def _deliverable(self, part: MessageColumns, envelope: Envelope | None, may_be_keyed: bool) -> list[MessageColumns]:
        """Return what to deliver of a run of messages without envelopes, or of one publisher."""
        if envelope is not None and envelope.publisher == self._send_queue.publisher:
            self._send_queue.stream_completed(envelope.counter, len(part.payloads))
        if self._opener is not None:
            return self._opened(self._opener, part, envelope)
        if envelope is None:
            return [part]
        columns = self._without_repeats(part, envelope)
        return list(map(_split_keys, columns)) if may_be_keyed else columns

    def _opened(self, opener: IPayloadOpener, part: MessageColumns, first: Envelope | None) -> list[MessageColumns]:
        """Open sealed payloads. Those that are not authentic have no effect on what counts as a repeat."""
        numbers, size = part.numbers, 0 if first is None else ENVELOPE_SIZE
        rows: list[int] = []
        opened: list[OpenedPayload] = []
        for row, payload in enumerate(part.payloads):
            found: OpenedPayload | Refusal = opener.open(payload, size)
            if isinstance(found, Refusal):
                self._on_refused(numbers[row], found)
            else:
                rows.append(row)
                opened.append(found)
        repeated = set() if first is None else self._repeated(numbers, rows, first)
        delivered: list[int] = []
        data: list[bytes] = []
        for row, payload_opened in zip(rows, opened, strict=True):
            if row in repeated:
                self._counters.repeats += 1
            elif opener.admit(payload_opened, numbers[row]):
                delivered.append(row)
                data.append(payload_opened.data)
            else:
                self._on_refused(numbers[row], Refusal.REPEATED)
        if not delivered:
            return []
        self._counters.opened += len(delivered)
        if len(delivered) == len(part.payloads):
            columns = part._replace(envelope_size=size, opened=data)
        else:
            times, payloads = [part.times[row] for row in delivered], [part.payloads[row] for row in delivered]
            columns = MessageColumns([numbers[row] for row in delivered], times, payloads, size, data)
        return [_split_keys(columns) if size and may_have_keys(data, 0) else columns]

    def _repeated(self, numbers: Sequence[int], rows: list[int], first: Envelope) -> set[int]:
        """Return those of ``rows`` that are repeats by their envelopes."""
        publisher = int.from_bytes(first.publisher, "big")
        found: set[int] = set()
        start = 0
        for end in range(1, len(rows) + 1):
            if end < len(rows) and rows[end] == rows[end - 1] + 1:
                continue
            row = rows[start]
            run = EnvelopeRun(numbers[row], publisher, first.counter + row, end - start)
            for begin, stop in self.repeats.add(run):
                found.update(range(row + begin, row + stop))
            start = end
        return found

    def _without_repeats(self, columns: MessageColumns, first: Envelope) -> list[MessageColumns]:
        numbers, times, payloads = columns.numbers, columns.times, columns.payloads
        count = len(payloads)
        run = EnvelopeRun(numbers[0], int.from_bytes(first.publisher, "big"), first.counter, count)
        repeated = self.repeats.add(run)
        if not repeated:
            return [MessageColumns(numbers, times, payloads, ENVELOPE_SIZE)]
        new, row = [], 0
        for begin, end in [*repeated, (count, count)]:
            if row < begin:
                rows = slice(row, begin)
                new.append(MessageColumns(numbers[rows], times[rows], payloads[rows], ENVELOPE_SIZE))
            self._counters.repeats += end - begin
            row = end
        return new


def _split_keys(columns: MessageColumns) -> MessageColumns:
    """Return the messages with their key headers split off."""
    if columns.opened is None:
        parts = [split_key(payload, columns.envelope_size) for payload in columns.payloads]
    else:
        parts = [split_key(data) for data in columns.opened]
    return columns._replace(opened=[data for _, data in parts], keys=[key for key, _ in parts])
