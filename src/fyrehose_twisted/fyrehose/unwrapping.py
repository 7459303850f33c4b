"""From runs of a stream to what an application gets: without envelopes, and each message once."""

from __future__ import annotations

from itertools import compress

from fyrehose_twisted.fyrehose.envelope import ENVELOPE_SIZE, Envelope, Seen, enveloped
from fyrehose_twisted.fyrehose.events import ClientCounters, Messages, Stretch
from fyrehose_twisted.fyrehose.outbox import Outbox
from fyrehose_twisted.fyrehose.reassembly import Run


class Unwrapping:
    """Takes envelopes off and leaves repeats out.

    :param raw: do neither.
    :param outbox: is told how far the stream is complete.
    """

    def __init__(self, outbox: Outbox, counters: ClientCounters, *, raw: bool) -> None:
        self._outbox = outbox
        self._counters = counters
        self._raw = raw
        self._seen = Seen()

    def messages(self, run: Run) -> Messages:
        """Return what ``run`` is for the application."""
        numbers = range(run.first, run.end)
        if self._raw:
            return Messages([Stretch(numbers, run.times, run.messages, 0)])
        stretches, row = [], 0
        for envelope, count in enveloped(run.messages):
            rows = slice(row, row + count)
            row += count
            stretch = Stretch(numbers[rows], run.times[rows], run.messages[rows], 0)
            stretches.append(stretch if envelope is None else self._unwrapped(stretch, envelope))
        return Messages(stretches)

    def _unwrapped(self, stretch: Stretch, first: Envelope) -> Stretch:
        count = len(stretch.payloads)
        if first.publisher == self._outbox.publisher:
            self._outbox.delivered(first.counter, count)
        if self._seen.add_run(first, count):
            return stretch._replace(envelope=ENVELOPE_SIZE)
        counters = range(first.counter, first.counter + count)
        new = [self._seen.add(Envelope(first.publisher, counter)) for counter in counters]
        self._counters.repeats += new.count(False)
        numbers, times, payloads = stretch.numbers, stretch.times, stretch.payloads
        return Stretch(
            list(compress(numbers, new)), list(compress(times, new)), list(compress(payloads, new)), ENVELOPE_SIZE
        )
