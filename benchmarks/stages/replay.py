"""Replays of recorded inputs by a new node: time of each message, without sockets and without the other nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median, quantiles
from typing import Any, NamedTuple

from stages.network import SETUP, Timeline
from stages.nodes import START, Recording

OTHER_BYTES = 2 * 2**20
"""Twice the second-level cache of most cores, which holds data and code. Figures then resemble those of processes."""
COLD_MESSAGES = 300


class Times(NamedTuple):
    """Result of one replay.

    :ivar nanoseconds: time of each message.
    :ivar cpu: CPU seconds of all messages.
    """

    nanoseconds: list[int]
    cpu: float


def replay(recording: Recording, warm_up: int, *, cold: bool = False) -> Times:
    """Replay a recording; time the messages after the first ``warm_up``.

    :param cold: fill the caches of the core with other data before each message.
    :raises RuntimeError: if the node does not do what it did when it was recorded.
    """
    calls, host = prepare(recording)
    clock = host.clock
    play(calls[: warm_up + 1], clock)
    timer, times = time.perf_counter_ns, []
    others = bytearray(OTHER_BYTES)
    cpu = time.thread_time()
    for call in calls[warm_up + 1 : -1]:
        if cold:
            others.count(1)
        began = timer()
        for at, method, arguments in call:
            clock.move(at)
            method(*arguments)
        times.append(timer() - began)
    cpu = time.thread_time() - cpu
    play(calls[-1:], clock)
    check(recording, host)
    return Times(times, cpu)


def prepare(recording: Recording) -> tuple[list[list[Any]], Any]:
    """Return the host, and its calls: of the setup, of each message, and after the last one."""
    clock = Timeline()
    clock.move(START)
    host = recording.make(clock, lambda effect: None)
    calls: list[list[Any]] = [[] for _ in range(recording.messages + 2)]
    for one in recording.inputs:
        calls[one.message - SETUP].append((one.at, *host.prepare(one.method, one.arguments)))
    return calls, host


def check(recording: Recording, host: Any) -> None:
    """:raises RuntimeError: if a replay had another result than the recording."""
    if host.events != recording.events:
        raise RuntimeError(f"the replay reported {host.events} events, {recording.events} were recorded")


def play(calls: Sequence[list[Any]], clock: Timeline) -> None:
    """Apply the inputs of messages."""
    for call in calls:
        for at, method, arguments in call:
            clock.move(at)
            method(*arguments)


class Summary(NamedTuple):
    """µs of one message in one node.

    :ivar cold: median with cold caches.
    :ivar cpu: CPU time, mean of the best round.
    """

    median: float
    p99: float
    cpu: float
    cold: float


def summarise(rounds: Sequence[Times], cold: Times) -> Summary:
    """Summarise all rounds."""
    cuts = quantiles([one for times in rounds for one in times.nanoseconds], n=100)
    cpu = min(times.cpu / len(times.nanoseconds) for times in rounds)
    return Summary(cuts[49] / 1e3, cuts[98] / 1e3, cpu * 1e6, median(cold.nanoseconds) / 1e3)


def replay_cold(recording: Recording, messages: int) -> Times:
    """Time the last :data:`COLD_MESSAGES` of ``messages`` with cold caches."""
    return replay(recording, max(messages - COLD_MESSAGES, 0), cold=True)


def rounds_of(recordings: dict[str, Recording], rounds: int, warm_up: int) -> Iterator[tuple[str, Times]]:
    """Replay all recordings in turn."""
    for _ in range(rounds):
        for name, recording in recordings.items():
            yield name, replay(recording, warm_up)
