"""Faults as they happen: what draws one of each kind for :meth:`~fyrehose_twisted.sim.schedule.FaultSchedule.draw`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log
from random import Random
from typing import Any

from fyrehose_twisted.sim.crash_mode import Crash
from fyrehose_twisted.sim.faults.disk_faults import BadReads, BadSyncs, FullDisk, PowerLoss, Rot, Troubled
from fyrehose_twisted.sim.faults.faults import EVERYONE, Changed, ClockSet, Cut, Fault, Names, Standing, Stopped
from fyrehose_twisted.sim.faults.stream_faults import HalfOpen, Refuse, Reset, SlowReader

Maker = Callable[[Random, float], Fault]
"""Draws a fault that begins at a given time."""

SHORT = 0.1
"""Seconds that a fault lasts at least."""


def crashes(
    names: Sequence[str], *, kinds: Sequence[Crash] = (Crash.KILLED,), longest: float = 5.0, between: float = 0.0
) -> Maker:
    """One of ``names`` crashes and is back after at most ``longest`` seconds.

    :param between: probability that it crashes after something was made durable and before anything is sent.
    """

    def make(rng: Random, at: float) -> Fault:
        return Stopped(at, _lasts(rng, longest), rng.choice(names), rng.choice(kinds), rng.random() < between)

    return make


def pauses(names: Sequence[str], *, longest: float = 8.0) -> Maker:
    """One of ``names`` stands still for at most ``longest`` seconds."""
    return lambda rng, at: Standing(at, _lasts(rng, longest), rng.choice(names))


def clocks(names: Sequence[str], *, by: float = 5.0, drift: float = 0.0005, longest: float = 60.0) -> Maker:
    """The clock of one of ``names`` is set by up to ``by`` seconds, or runs wrong by up to ``drift`` for a while."""

    def make(rng: Random, at: float) -> Fault:
        name = rng.choice(names)
        if not drift or (by and rng.random() < 0.5):
            return ClockSet(at, 0.0, name, by=round(rng.uniform(-by, by), 3) or by)
        rate = round(1 + rng.uniform(-drift, drift), 6)
        # A clock that runs right is no fault, and cannot be read back.
        return ClockSet(at, _lasts(rng, longest), name, rate=rate if rate != 1.0 else 1 + drift)

    return make


def cuts(names: Sequence[str], *, longest: float = 10.0, hub: str | None = None) -> Maker:
    """Nothing passes between some hosts: one from one or from all, or some from the rest; one way or both.

    :param hub: a host that half of these faults concern.
    """

    def make(rng: Random, at: float) -> Fault:
        lasts, both_ways = _lasts(rng, longest), rng.random() < 0.6
        return Cut(at, lasts, *_sides(rng, names, hub), both_ways)

    return make


def bad_links(names: Sequence[str], *, longest: float = 20.0, hub: str | None = None, garbling: bool = False) -> Maker:
    """Links between some hosts lose, repeat, delay, reorder, garble or choke what travels on them.

    :param hub: a host that half of these faults concern.
    :param garbling: let damaged datagrams arrive, as if they had no checksum.
    """

    def make(rng: Random, at: float) -> Fault:
        kinds = list(_WORSE) + [_garbled] * garbling
        changes: dict[str, Any] = {}
        for draw in rng.sample(kinds, rng.randrange(1, 4)):
            changes |= draw(rng)
        both_ways = rng.random() < 0.5
        return Changed(at, _lasts(rng, longest), *_sides(rng, names, hub), both_ways, tuple(changes.items()))

    return make


def resets(names: Sequence[str]) -> Maker:
    """The stream connections between two of ``names`` are reset, and both sides are told."""
    return lambda rng, at: Reset(at, 0.0, *rng.sample(names, 2))


def half_opens(names: Sequence[str]) -> Maker:
    """The stream connections between two of ``names`` are reset, and one side finds out only when it writes."""
    return lambda rng, at: HalfOpen(at, 0.0, *rng.sample(names, 2))


def refusals(names: Sequence[str], *, longest: float = 10.0) -> Maker:
    """One of ``names`` takes no new stream connections for at most ``longest`` seconds."""
    return lambda rng, at: Refuse(at, _lasts(rng, longest), rng.choice(names))


def slow_readers(
    names: Sequence[str], *, rates: tuple[float, float] = (100.0, 100_000.0), longest: float = 20.0, single: float = 0.5
) -> Maker:
    """One of ``names`` reads slowly from its streams.

    :param rates: bytes a second, at least and at most; each order of magnitude between is as likely.
    :param single: probability that it is slow only with what comes from one other host.
    """

    def make(rng: Random, at: float) -> Fault:
        host, source = rng.sample(names, 2) if rng.random() < single else (rng.choice(names), "")
        rate = exp(rng.uniform(*map(log, rates)))
        return SlowReader(at, _lasts(rng, longest), host, float(f"{rate:.3g}"), source)

    return make


def disks(
    names: Sequence[str], *, kinds: Sequence[type[Troubled]] = (FullDisk, BadReads, BadSyncs), longest: float = 5.0
) -> Maker:
    """The disk of one of ``names`` is full, or nothing can be read from it or made durable, for a while."""
    return lambda rng, at: rng.choice(kinds)(at, _lasts(rng, longest), rng.choice(names))


def power_cuts(names: Sequence[str], *, longest: float = 5.0, most: int = 100_000) -> Maker:
    """Power is cut while the disk of one of ``names`` does something, and is back after at most ``longest`` seconds.

    :param most: bytes that are written before that, at most; each order of magnitude is as likely.
    """
    return lambda rng, at: PowerLoss(at, _lasts(rng, longest), rng.choice(names), int(exp(rng.uniform(0.0, log(most)))))


def rots(names: Sequence[str]) -> Maker:
    """One bit flips of what is durable on the disk of one of ``names``."""
    return lambda rng, at: Rot(at, 0.0, rng.choice(names), round(rng.uniform(0.0, 0.9999), 4), rng.randrange(8))


def _garbled(rng: Random) -> dict[str, Any]:
    return {"corruption": _share(rng, 0.2), "truncation": _share(rng, 0.1), "checksum": False}


_WORSE: tuple[Callable[[Random], dict[str, Any]], ...] = (
    lambda rng: {"loss": _share(rng, 0.5)},
    lambda rng: {"duplication": _share(rng, 0.5)},
    lambda rng: {"reordering": _share(rng, 0.5)},
    lambda rng: {"jitter": _share(rng, 0.3)},
    lambda rng: {"tail": _share(rng, 0.1)},
    lambda rng: {"delay": _share(rng, 0.5)},
    lambda rng: {"corruption": _share(rng, 0.3)},
    lambda rng: {"mtu": rng.choice((576, 1_280, 1_500)), "fragments": rng.random() < 0.7},
    lambda rng: {"bandwidth": float(rng.randrange(20_000, 500_000)), "queue": rng.randrange(16_384, 131_072)},
)


def _sides(rng: Random, names: Sequence[str], hub: str | None) -> tuple[Names, Names]:
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
        return ((one,), (EVERYONE,)) if rng.random() < 0.5 else ((EVERYONE,), (one,))
    shuffled = rng.sample(names, len(names))
    cut = rng.randrange(1, len(names))
    return tuple(shuffled[:cut]), tuple(shuffled[cut:])


def _lasts(rng: Random, longest: float) -> float:
    return round(rng.uniform(SHORT, longest), 3)


def _share(rng: Random, highest: float) -> float:
    return round(rng.uniform(0.0, highest), 3)
