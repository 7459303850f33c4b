"""Generators of random faults for :meth:`~fyrehose_twisted.sim.schedule.FaultSchedule.draw`, one per kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log
from random import Random
from typing import Any

from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.faults.disk_faults import (
    BitRot,
    FullDisk,
    LastingDiskFault,
    PowerLoss,
    ReadErrors,
    SyncErrors,
)
from fyrehose_twisted.sim.faults.faults import (
    ALL_HOSTS,
    ClockFault,
    CrashFault,
    Fault,
    HostNames,
    LinkFault,
    PartitionFault,
    PauseFault,
)
from fyrehose_twisted.sim.faults.stream_faults import DialRefusal, HalfOpen, Reset, SlowReader

FaultGenerator = Callable[[Random, float], Fault]
"""Function that draws a fault with a given start time."""

MIN_DURATION = 0.1
"""Minimum duration of a fault in seconds."""


def crashes(
    names: Sequence[str],
    *,
    kinds: Sequence[CrashMode] = (CrashMode.KILLED,),
    max_duration: float = 5.0,
    after_persist: float = 0.0,
) -> FaultGenerator:
    """Return a generator of crashes of one of ``names``, with a restart after at most ``max_duration`` seconds.

    :param after_persist: probability of a crash after state was made durable and before dependent data is sent.
    """

    def make(rng: Random, at: float) -> Fault:
        return CrashFault(
            at, _draw_duration(rng, max_duration), rng.choice(names), rng.choice(kinds), rng.random() < after_persist
        )

    return make


def pauses(names: Sequence[str], *, max_duration: float = 8.0) -> FaultGenerator:
    """Return a generator of pauses of one of ``names``, for at most ``max_duration`` seconds."""
    return lambda rng, at: PauseFault(at, _draw_duration(rng, max_duration), rng.choice(names))


def clock_faults(
    names: Sequence[str], *, max_offset: float = 5.0, max_drift: float = 0.0005, max_duration: float = 60.0
) -> FaultGenerator:
    """Return a generator of clock faults of one of ``names``: a step of up to ``max_offset`` seconds, or a temporary
    drift of up to ``max_drift``."""

    def make(rng: Random, at: float) -> Fault:
        name = rng.choice(names)
        if not max_drift or (max_offset and rng.random() < 0.5):
            return ClockFault(at, 0.0, name, offset=round(rng.uniform(-max_offset, max_offset), 3) or max_offset)
        rate = round(1 + rng.uniform(-max_drift, max_drift), 6)
        # A rate of 1 without a step is no fault, and its text cannot be parsed.
        return ClockFault(at, _draw_duration(rng, max_duration), name, rate=rate if rate != 1.0 else 1 + max_drift)

    return make


def cuts(names: Sequence[str], *, max_duration: float = 10.0, hub: str | None = None) -> FaultGenerator:
    """Return a generator of partitions: between two hosts, one host and all, or a group and the rest; one way or both.

    :param hub: host affected by half of these faults.
    """

    def make(rng: Random, at: float) -> Fault:
        lasts, both_ways = _draw_duration(rng, max_duration), rng.random() < 0.6
        return PartitionFault(at, lasts, *_draw_sides(rng, names, hub), both_ways)

    return make


def bad_links(
    names: Sequence[str], *, max_duration: float = 20.0, hub: str | None = None, deliver_corrupted: bool = False
) -> FaultGenerator:
    """Return a generator of link faults between hosts: loss, duplication, delay, reordering, corruption, low bandwidth.

    :param hub: host affected by half of these faults.
    :param deliver_corrupted: deliver corrupted datagrams, as without a checksum.
    """

    def make(rng: Random, at: float) -> Fault:
        kinds = list(_LINK_IMPAIRMENTS) + [_draw_corruption] * deliver_corrupted
        changes: dict[str, Any] = {}
        for draw in rng.sample(kinds, rng.randrange(1, 4)):
            changes |= draw(rng)
        both_ways = rng.random() < 0.5
        return LinkFault(
            at, _draw_duration(rng, max_duration), *_draw_sides(rng, names, hub), both_ways, tuple(changes.items())
        )

    return make


def resets(names: Sequence[str]) -> FaultGenerator:
    """Return a generator of resets of the stream connections between two of ``names``, on both sides."""
    return lambda rng, at: Reset(at, 0.0, *rng.sample(names, 2))


def half_opens(names: Sequence[str]) -> FaultGenerator:
    """Return a generator of half-open connections between two of ``names``: one side detects it on write only."""
    return lambda rng, at: HalfOpen(at, 0.0, *rng.sample(names, 2))


def refusals(names: Sequence[str], *, max_duration: float = 10.0) -> FaultGenerator:
    """Return a generator of periods, of at most ``max_duration`` seconds, in which one of ``names`` refuses dials."""
    return lambda rng, at: DialRefusal(at, _draw_duration(rng, max_duration), rng.choice(names))


def slow_readers(
    names: Sequence[str],
    *,
    rates: tuple[float, float] = (100.0, 100_000.0),
    max_duration: float = 20.0,
    single_source: float = 0.5,
) -> FaultGenerator:
    """Return a generator of slow reads from streams by one of ``names``.

    :param rates: minimum and maximum bytes per second, with a log-uniform distribution.
    :param single_source: probability that only reads from one other host are slow.
    """

    def make(rng: Random, at: float) -> Fault:
        host, source = rng.sample(names, 2) if rng.random() < single_source else (rng.choice(names), "")
        rate = exp(rng.uniform(*map(log, rates)))
        return SlowReader(at, _draw_duration(rng, max_duration), host, float(f"{rate:.3g}"), source)

    return make


def disk_errors(
    names: Sequence[str],
    *,
    kinds: Sequence[type[LastingDiskFault]] = (FullDisk, ReadErrors, SyncErrors),
    max_duration: float = 5.0,
) -> FaultGenerator:
    """Return a generator of temporary disk faults of one of ``names``: full disk, read errors or sync errors."""
    return lambda rng, at: rng.choice(kinds)(at, _draw_duration(rng, max_duration), rng.choice(names))


def power_cuts(names: Sequence[str], *, max_duration: float = 5.0, max_bytes: int = 100_000) -> FaultGenerator:
    """Return a generator of power losses of one of ``names`` during a disk operation, for at most ``max_duration``
    seconds.

    :param max_bytes: maximum bytes written before the loss, with a log-uniform distribution.
    """
    return lambda rng, at: PowerLoss(
        at, _draw_duration(rng, max_duration), rng.choice(names), int(exp(rng.uniform(0.0, log(max_bytes))))
    )


def bit_rot(names: Sequence[str]) -> FaultGenerator:
    """Return a generator of single bit flips in durable data on the disk of one of ``names``."""
    return lambda rng, at: BitRot(at, 0.0, rng.choice(names), round(rng.uniform(0.0, 0.9999), 4), rng.randrange(8))


def _draw_corruption(rng: Random) -> dict[str, Any]:
    return {"corruption": _draw_fraction(rng, 0.2), "truncation": _draw_fraction(rng, 0.1), "checksum": False}


_LINK_IMPAIRMENTS: tuple[Callable[[Random], dict[str, Any]], ...] = (
    lambda rng: {"loss": _draw_fraction(rng, 0.5)},
    lambda rng: {"duplication": _draw_fraction(rng, 0.5)},
    lambda rng: {"reordering": _draw_fraction(rng, 0.5)},
    lambda rng: {"jitter": _draw_fraction(rng, 0.3)},
    lambda rng: {"tail": _draw_fraction(rng, 0.1)},
    lambda rng: {"delay": _draw_fraction(rng, 0.5)},
    lambda rng: {"corruption": _draw_fraction(rng, 0.3)},
    lambda rng: {"mtu": rng.choice((576, 1_280, 1_500)), "fragments": rng.random() < 0.7},
    lambda rng: {"bandwidth": float(rng.randrange(20_000, 500_000)), "queue": rng.randrange(16_384, 131_072)},
)


def _draw_sides(rng: Random, names: Sequence[str], hub: str | None) -> tuple[HostNames, HostNames]:
    if hub is not None and rng.random() < 0.5:
        others = [name for name in names if name != hub]
        some = tuple(rng.sample(others, rng.randrange(1, len(others) + 1)))
        return ((hub,), some) if rng.random() < 0.5 else (some, (hub,))
    kind = rng.random()
    if kind < 0.4:
        one, other = rng.sample(names, 2)
        return (one,), (other,)
    if kind < 0.7:
        one = rng.choice(names)
        return ((one,), (ALL_HOSTS,)) if rng.random() < 0.5 else ((ALL_HOSTS,), (one,))
    shuffled = rng.sample(names, len(names))
    cut = rng.randrange(1, len(names))
    return tuple(shuffled[:cut]), tuple(shuffled[cut:])


def _draw_duration(rng: Random, max_duration: float) -> float:
    return round(rng.uniform(MIN_DURATION, max_duration), 3)


def _draw_fraction(rng: Random, highest: float) -> float:
    return round(rng.uniform(0.0, highest), 3)
