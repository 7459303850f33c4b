"""From runs of a stream to what an application gets: without envelopes, and each message once."""

from __future__ import annotations

from fyrehose_twisted.fyrehose.events import ClientCounters, Messages, Stretch
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import Outbox
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import Run
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, Envelope, enveloped
from fyrehose_twisted.repeats import Repeats
from fyrehose_twisted.repeats import Run as EnvelopeRun


class Unwrapping:
    """Takes envelopes off and leaves repeats out.

    :param raw: do neither.
    :param outbox: is told how far the stream is complete.
    :ivar repeats: the envelopes that came lately.
    """

    def __init__(self, outbox: Outbox, counters: ClientCounters, *, raw: bool) -> None:
        self._outbox = outbox
        self._counters = counters
        self._raw = raw
        self.repeats = Repeats()

    def messages(self, run: Run) -> Messages:
        """Return what ``run`` is for the application."""
        numbers = range(run.first, run.end)
        if self._raw:
            return Messages([Stretch(numbers, run.times, run.messages, 0)])
        stretches: list[Stretch] = []
        row = 0
        for envelope, count in enveloped(run.messages):
            rows = slice(row, row + count)
            row += count
            stretch = Stretch(numbers[rows], run.times[rows], run.messages[rows], 0)
            stretches += [stretch] if envelope is None else self._unwrapped(stretch, envelope)
        return Messages(stretches)

    def _unwrapped(self, stretch: Stretch, first: Envelope) -> list[Stretch]:
        numbers, times, payloads, _ = stretch
        count = len(payloads)
        if first.publisher == self._outbox.publisher:
            self._outbox.delivered(first.counter, count)
        run = EnvelopeRun(numbers[0], int.from_bytes(first.publisher, "big"), first.counter, count)
        repeated = self.repeats.add(run)
        if not repeated:
            return [Stretch(numbers, times, payloads, ENVELOPE_SIZE)]
        new, row = [], 0
        for begin, end in [*repeated, (count, count)]:
            if row < begin:
                rows = slice(row, begin)
                new.append(Stretch(numbers[rows], times[rows], payloads[rows], ENVELOPE_SIZE))
            self._counters.repeats += end - begin
            row = end
        return new
