"""Stages of messages, found in the time stamps of the processes that they passed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import quantiles
from typing import NamedTuple

from stages.stamps import Stamps

CLIENT, SERVER, READER = "publisher: publish to send", "server: wake-up to send", "subscriber: wake-up to callback"
TO_SERVER, TO_READER = "kernel: send to wake-up of the server", "kernel: send to wake-up of the subscriber"
UNSEEN = "kernel, server, kernel: send to wake-up of the subscriber"

Follow = Callable[[int, int], Iterator[int]]
"""Yields the moments between two stages, from the beginning to the end of a message."""


class Chains(NamedTuple):
    """Stages of all messages.

    :ivar names: of the stages.
    :ivar times: nanoseconds of the stages of each message.
    :ivar lost: number of messages that could not be followed, because a process was not asleep when one arrived.
    """

    names: tuple[str, ...]
    times: list[tuple[int, ...]]
    lost: int


class Row(NamedTuple):
    """One stage.

    :ivar median: µs, as is ``p99``.
    :ivar share: part of the sum of the medians.
    """

    stage: str
    median: float
    p99: float
    share: float


class Broken(Exception):
    """A message cannot be followed."""


def after(stamps: Sequence[int], moment: int) -> int:
    """Return the first stamp at or after a moment. :raises Broken: if there is none."""
    place = bisect_left(stamps, moment)
    if place == len(stamps):
        raise Broken
    return stamps[place]


def woken(stamps: Stamps, sent: int, end: int) -> int:
    """Return the wake-up after ``sent``. :raises Broken: unless it is the last one before ``end``."""
    wake = after(stamps.wakes, sent)
    if wake > end or stamps.wakes[bisect_right(stamps.wakes, end) - 1] != wake:
        raise Broken
    return wake


def follow_messages(publisher: Stamps, server: Stamps | None, reader: Stamps, warm_up: int) -> Chains:
    """Follow messages from a publisher through a server to a reader, which may be the publisher."""

    def follow(begin: int, end: int) -> Iterator[int]:
        yield begin
        yield (sent := after(publisher.sends, begin))
        if server is not None:
            yield (wake := after(server.wakes, sent))
            yield (sent := after(server.sends, wake))
        yield woken(reader, sent, end)
        yield end

    names = (CLIENT, UNSEEN, READER) if server is None else (CLIENT, TO_SERVER, SERVER, TO_READER, READER)
    return _follow(names, follow, publisher.begins, reader.ends, warm_up)


EVENT_STAGES = (
    "client: publish to send",
    "kernel: send to wake-up of the leader",
    "leader: wake-up to send",
    "kernel: send to wake-up of the follower",
    "follower: wake-up to send",
    "kernel: send to wake-up of the leader again",
    "leader: wake-up to send of the answer",
    "kernel: send to wake-up of the client",
    "client: wake-up to callback",
)


def follow_events(client: Stamps, leader: Stamps, followers: Sequence[Stamps], warm_up: int) -> Chains:
    """Follow events from a client to a leader, to the follower that answers first, and back."""

    def follow(begin: int, end: int) -> Iterator[int]:
        yield begin
        yield (sent := after(client.sends, begin))
        yield (wake := after(leader.wakes, sent))
        yield (sent := after(leader.sends, wake))
        wakes = [after(each.wakes, sent) for each in followers]
        sent, wake = min((after(each.sends, wake), wake) for each, wake in zip(followers, wakes, strict=True))
        yield wake
        yield sent
        yield (wake := after(leader.wakes, sent))
        yield (sent := after(leader.sends, wake))
        yield woken(client, sent, end)
        yield end

    return _follow(EVENT_STAGES, follow, client.begins, client.ends, warm_up)


def _follow(names: tuple[str, ...], follow: Follow, begins: Sequence[int], ends: Sequence[int], warm_up: int) -> Chains:
    times: list[tuple[int, ...]] = []
    lost = 0
    for begin, end in list(zip(begins, ends, strict=True))[warm_up:]:
        try:
            moments = list(follow(begin, end))
        except Broken:
            lost += 1
            continue
        times.append(tuple(later - earlier for earlier, later in pairwise(moments)))
    return Chains(names, times, lost)


def rows(chains: Sequence[Chains]) -> list[Row]:
    """Return the stages of several rounds, and the whole."""
    times = [one for each in chains for one in each.times]
    if len(times) < 2:
        return []
    cuts = [quantiles(column, n=100) for column in zip(*times, strict=True)]
    whole = quantiles(map(sum, times), n=100)
    total = sum(cut[49] for cut in cuts)
    found = [
        Row(name, cut[49] / 1e3, cut[98] / 1e3, cut[49] / total)
        for name, cut in zip(chains[0].names, cuts, strict=True)
    ]
    return [*found, Row("all", whole[49] / 1e3, whole[98] / 1e3, 1.0)]
