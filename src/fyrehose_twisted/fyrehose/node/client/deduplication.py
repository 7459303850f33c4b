"""Removal of envelopes and repeats before delivery."""

from __future__ import annotations

from fyrehose_twisted.fyrehose.events import ClientCounters, MessageColumns, Messages
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import SendQueue
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MessageRun
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, Envelope, envelope_runs
from fyrehose_twisted.repeats import EnvelopeRun as EnvelopeRun
from fyrehose_twisted.repeats import RepeatDetector


class Deduplicator:
    """Filter that removes envelopes and repeats from runs of messages.

    :param send_queue: send queue, which is notified of its own messages in the complete part of the stream.
    :param raw: deliver messages unchanged.
    :ivar repeats: detector with the envelopes received lately.
    """

    def __init__(self, send_queue: SendQueue, counters: ClientCounters, *, raw: bool) -> None:
        self._send_queue = send_queue
        self._counters = counters
        self._raw = raw
        self.repeats = RepeatDetector()

    def deliverable(self, run: MessageRun) -> Messages:
        """Return the messages of ``run`` to deliver to the application."""
        numbers = range(run.first, run.end)
        if self._raw:
            return Messages([MessageColumns(numbers, run.times, run.messages, 0)])
        columns: list[MessageColumns] = []
        row, runs = 0, envelope_runs(run.messages)
        if len(runs) == 1:
            part, envelope = MessageColumns(numbers, run.times, run.messages, 0), runs[0][0]
            return Messages([part] if envelope is None else self._without_repeats(part, envelope))
        for envelope, count in runs:
            rows = slice(row, row + count)
            row += count
            part = MessageColumns(numbers[rows], run.times[rows], run.messages[rows], 0)
            columns += [part] if envelope is None else self._without_repeats(part, envelope)
        return Messages(columns)

    def _without_repeats(self, columns: MessageColumns, first: Envelope) -> list[MessageColumns]:
        numbers, times, payloads, _ = columns
        count = len(payloads)
        if first.publisher == self._send_queue.publisher:
            self._send_queue.stream_completed(first.counter, count)
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
