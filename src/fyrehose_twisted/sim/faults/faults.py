"""What can go wrong: each fault has a time, ends by itself, and is a line of text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fyrehose_twisted.sim.crash_mode import Crash
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.wallclock import RATES

if TYPE_CHECKING:
    from fyrehose_twisted.effects import Address
    from fyrehose_twisted.sim.host import Host
    from fyrehose_twisted.sim.network import Network

EVERYONE = "*"
"""Stands for every host in a list of names."""

Names = tuple[str, ...]

_NAMES = r"[^\s,]+(?:, [^\s,]+)*"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong ``at`` seconds after the start of a run, and ends by itself ``lasts`` seconds later.

    Its text is one line: ``at``, its word, what it concerns, and ``for`` how long.

    :cvar example: what may follow its time, for those who got it wrong.
    """

    word: ClassVar[str]
    pattern: ClassVar[str]
    example: ClassVar[str] = ""

    at: float
    lasts: float = 0.0

    @property
    def until(self) -> float:
        """When it is over, in seconds after the start."""
        return self.at + self.lasts

    @property
    def goes_on(self) -> bool:
        """Whether its text has to say for how long."""
        return False

    def begin(self, network: Network) -> None:
        """Let it happen."""
        raise NotImplementedError(f"{type(self).__name__} does not say what happens")

    def names(self) -> Names:
        """Return the names of the hosts that it concerns."""
        return ()

    def check(self, network: Network) -> None:
        """See that it can happen on ``network``.

        :raises KeyError: if it concerns a host that is not there.
        :raises ConfigurationError: if it cannot happen to one that is.
        """
        for name in self.names():
            network.host(name)

    def details(self) -> str:
        """Return the middle of its text, which :meth:`read` takes apart again."""
        return ", ".join(self.names())

    @classmethod
    def read(cls, at: float, lasts: float, found: dict[str, str]) -> Fault:
        """Return the fault whose :meth:`details` matched :attr:`pattern`."""
        raise NotImplementedError(f"{cls.__name__} does not say how it is read")

    def __str__(self) -> str:
        text = f"{self.at!r} {self.word} {self.details()}".rstrip()
        return f"{text} for {self.lasts!r}" if self.lasts or self.goes_on else text


@dataclass(frozen=True, slots=True)
class OfHost(Fault):
    """Base of faults of one host that last for a while. By default its name is all that the text says of them."""

    pattern: ClassVar[str] = r"(?P<host>\S+)"

    host: str = ""

    @property
    def goes_on(self) -> bool:
        """See :meth:`Fault.goes_on`."""
        return True

    def names(self) -> Names:
        """See :meth:`Fault.names`."""
        return (self.host,)

    @classmethod
    def read(cls, at: float, lasts: float, found: dict[str, str]) -> Fault:
        """See :meth:`Fault.read`."""
        return cls(at, lasts, found["host"])


@dataclass(frozen=True, slots=True)
class Stopped(OfHost):
    """A host crashes and starts again: ``crash backbone killed for 2.5``.

    :ivar between: it crashes once something was made durable, before anything that depends on it is sent, if that
        happens within the time that the crash lasts.
    """

    word: ClassVar[str] = "crash"
    pattern: ClassVar[str] = rf"(?P<host>\S+) (?P<crash>{'|'.join(c.value for c in Crash)})(?P<between> once durable)?"
    example: ClassVar[str] = "crash backbone power lost for 2.5"

    crash: Crash = Crash.KILLED
    between: bool = False

    @property
    def until(self) -> float:
        """See :meth:`Fault.until`."""
        return self.at + (2 if self.between else 1) * self.lasts

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        host = network.host(self.host)
        if not host.up:
            return
        if self.between:
            host.stop_after_persisting(self.crash, self.lasts)
            return
        host.stop(self.crash)
        network.call_in(self.lasts, _unless_restarted(host, host.start))

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        return f"{self.host} {self.crash.value}{' once durable' if self.between else ''}"

    @classmethod
    def read(cls, at: float, lasts: float, found: dict[str, str]) -> Fault:
        """See :meth:`Fault.read`."""
        return cls(at, lasts, found["host"], Crash(found["crash"]), bool(found["between"]))


@dataclass(frozen=True, slots=True)
class Standing(OfHost):
    """A host stands still and goes on: ``pause sub-1 for 8.0``. One that stands still already goes on no later."""

    word: ClassVar[str] = "pause"
    example: ClassVar[str] = "pause sub-1 for 8.0"

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        host = network.host(self.host)
        if host.stand():
            network.call_in(self.lasts, _unless_restarted(host, host.go_on))


@dataclass(frozen=True, slots=True)
class ClockSet(OfHost):
    """A clock is set forward or back, or runs wrong for a while. It runs as the last such fault has it.

    ``clock sub-1 +3.5``, ``clock sub-1 x1.0002 for 60.0``.

    :ivar by: seconds.
    :ivar rate: seconds that it counts in one.
    """

    word: ClassVar[str] = "clock"
    pattern: ClassVar[str] = r"(?P<host>\S+)(?: (?P<by>[+-]\S+))?(?: x(?P<rate>\S+))?"
    example: ClassVar[str] = "clock sub-1 +3.5 x1.0002 for 60.0"

    by: float = 0.0
    rate: float = 1.0

    @property
    def goes_on(self) -> bool:
        """See :meth:`Fault.goes_on`."""
        return self.rate != 1.0

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        host = network.host(self.host)
        host.set_clock(by=self.by, rate=None if self.rate == 1.0 else self.rate)
        if self.rate != 1.0:
            network.call_in(self.lasts, partial(self._end, host))

    def _end(self, host: Host) -> None:
        if host.clock.rate == self.rate:
            host.set_clock(rate=1.0)

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        by = f" {self.by:+}" if self.by else ""
        return f"{self.host}{by}{f' x{self.rate!r}' if self.rate != 1.0 else ''}"

    @classmethod
    def read(cls, at: float, lasts: float, found: dict[str, str]) -> Fault:
        """See :meth:`Fault.read`."""
        by, rate = number(found["by"] or "0"), number(found["rate"] or "1")
        if not RATES[0] <= rate <= RATES[1]:
            raise ValueError(f"a clock cannot count {rate!r} s in one; give {RATES[0]:g} to {RATES[1]:g}")
        if not by and rate == 1.0:
            raise ValueError("nothing happens to the clock; add by how many seconds, +3.5, or how fast, x1.5 for 60.0")
        return cls(at, lasts, found["host"], by, rate)


@dataclass(frozen=True, slots=True)
class Changed(Fault):
    """Links are worse for a while: ``link sub-1 -> backbone, pub-1 loss=0.3 jitter=0.2 for 10.0``.

    :ivar changes: fields of :class:`~fyrehose_twisted.sim.link.Link` and their values, as pairs.
    """

    word: ClassVar[str] = "link"
    pattern: ClassVar[str] = (
        rf"(?P<sources>{_NAMES}) (?P<arrow><?->) (?P<destinations>{_NAMES})(?P<changes>( \w+=[^\s=]+)*)"
    )
    example: ClassVar[str] = "link sub-1 -> backbone, pub-1 loss=0.3 jitter=0.2 for 10.0"

    sources: Names = ()
    destinations: Names = ()
    both_ways: bool = False
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def goes_on(self) -> bool:
        """See :meth:`Fault.goes_on`."""
        return True

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        sources, destinations = _addresses(network, self.sources), _addresses(network, self.destinations)
        values = self.values()
        began = [network.change(sources, destinations, **values)]
        if self.both_ways:
            began.append(network.change(destinations, sources, **values))
        for change in began:
            network.call_in(self.lasts, partial(network.restore, change))

    def values(self) -> dict[str, Any]:
        """Return what changes."""
        return dict(self.changes)

    def names(self) -> Names:
        """See :meth:`Fault.names`."""
        return tuple(dict.fromkeys(name for name in self.sources + self.destinations if name != EVERYONE))

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        arrow = "<->" if self.both_ways else "->"
        changes = "".join(f" {name}={value!r}" for name, value in self.changes)
        return f"{', '.join(self.sources)} {arrow} {', '.join(self.destinations)}{changes}"

    @classmethod
    def read(cls, at: float, lasts: float, found: dict[str, str]) -> Fault:
        """See :meth:`Fault.read`."""
        changes = tuple(_link_value(*change.split("=")) for change in found["changes"].split())
        Link(**dict(changes))
        fault = cls(
            at,
            lasts,
            tuple(found["sources"].split(", ")),
            tuple(found["destinations"].split(", ")),
            found["arrow"] == "<->",
            changes,
        )
        if not fault.values():
            raise ValueError("nothing happens to the link; add what changes, such as loss=0.3")
        return fault


@dataclass(frozen=True, slots=True)
class Cut(Changed):
    """Nothing passes for a while: ``cut sub-1 -> backbone for 3.0``, or with ``<->`` both ways."""

    word: ClassVar[str] = "cut"
    pattern: ClassVar[str] = rf"(?P<sources>{_NAMES}) (?P<arrow><?->) (?P<destinations>{_NAMES})(?P<changes>)"
    example: ClassVar[str] = "cut sub-1 <-> * for 3.0"

    def values(self) -> dict[str, Any]:
        """See :meth:`Changed.values`."""
        return {"up": False}


FaultT = TypeVar("FaultT", bound=type[Fault])

_WORDS: dict[str, type[Fault]] = {}


def readable(kind: FaultT) -> FaultT:
    """Let :func:`read` read faults of this class by their word; usable as a decorator."""
    _WORDS[kind.word] = kind
    return kind


for _kind in (Stopped, Standing, ClockSet, Changed, Cut):
    readable(_kind)


def _boolean(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text == "True"


def number(text: str) -> float:
    """Return the number that ``text`` says. :raises ValueError: if it is none, or not finite."""
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not -inf < found < inf:
        raise ValueError(f"{text!r} is no number that a run could get to")
    return found


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None


def _or_none(read_it: Callable[[str], float]) -> Callable[[str], float | None]:
    return lambda text: None if text == "None" else read_it(text)


_READERS: dict[str, Callable[[str], Any]] = {
    "bool": _boolean,
    "float": number,
    "int": _whole,
    "int | None": _or_none(_whole),
    "float | None": _or_none(number),
}
_LINK_VALUES = {field.name: _READERS[str(field.type)] for field in fields(Link)}


def _link_value(name: str, text: str) -> tuple[str, Any]:
    if name not in _LINK_VALUES:
        raise ValueError(f"links have no {name!r}; they have {', '.join(_LINK_VALUES)}")
    try:
        return name, _LINK_VALUES[name](text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def read(line: str) -> Fault:
    """Return the fault whose text is ``line``.

    :raises ValueError: saying what makes no sense.
    """
    found = re.fullmatch(r"(?P<at>\S+) (?P<word>\S+) (?P<details>.*?)(?: for (?P<lasts>\S+))?", line)
    if found is None:
        raise ValueError(f"want a time, a word, and what it concerns, such as: 12.5 {Standing.example}")
    kind = _WORDS.get(found["word"])
    if kind is None:
        raise ValueError(f"no fault {found['word']!r}; there are {', '.join(sorted(_WORDS))}")
    details = re.fullmatch(kind.pattern, found["details"])
    if details is None:
        such_as = f", such as: {found['at']} {kind.example}" if kind.example else ""
        commas = '; names are separated by ", "' if re.search(r",\S|\s,", found["details"]) else ""
        raise ValueError(f"{found['details']!r} does not say what {kind.word} concerns{such_as}{commas}")
    at, lasts = number(found["at"]), number(found["lasts"] or "0")
    if at < 0 or lasts < 0:
        raise ValueError("nothing happens before the start, and nothing lasts less than 0 s")
    fault = kind.read(at, lasts, details.groupdict())
    if found["lasts"] is None and fault.goes_on:
        raise ValueError(f"for how long? Add it: {line} for 3.0")
    return fault


def _unless_restarted(host: Host, action: Callable[[], object]) -> Callable[[], None]:
    """Return what calls ``action``, but not if the host was started meanwhile: what it would end is over."""
    boots = host.boots

    def act() -> None:
        if host.boots == boots:
            action()

    return act


def _addresses(network: Network, names: Names) -> list[Address] | None:
    return None if EVERYONE in names else [network.host(name).address for name in names]
