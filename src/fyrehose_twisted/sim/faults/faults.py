"""Faults of hosts and links, each with a start, a duration and a one-line text format."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.wallclock import RATE_RANGE

if TYPE_CHECKING:
    from fyrehose_twisted.effects import Address
    from fyrehose_twisted.sim.host import Host
    from fyrehose_twisted.sim.network import Network

ALL_HOSTS = "*"
"""Wildcard for all hosts in a list of names."""

HostNames = tuple[str, ...]

_NAMES = r"[^\s,]+(?:, [^\s,]+)*"


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault that begins ``at`` seconds after the start of a run and ends ``duration`` seconds later.

    Its text is one line: ``at``, the keyword, the details, and ``for`` with the duration.

    :cvar example: example of the text after the time, for error messages.
    """

    keyword: ClassVar[str]
    pattern: ClassVar[str]
    example: ClassVar[str] = ""

    at: float
    duration: float = 0.0

    @property
    def ends_at(self) -> float:
        """End of the fault, in seconds after the start."""
        return self.at + self.duration

    @property
    def has_duration(self) -> bool:
        """Whether the text of the fault includes its duration."""
        return False

    def begin(self, network: Network) -> None:
        """Begin the fault."""
        raise NotImplementedError(f"{type(self).__name__} does not override begin()")

    def host_names(self) -> HostNames:
        """Return the names of the affected hosts."""
        return ()

    def check(self, network: Network) -> None:
        """Check that the fault is applicable to ``network``.

        :raises KeyError: if an affected host does not exist.
        :raises ConfigurationError: if an affected host cannot have this fault.
        """
        for name in self.host_names():
            network.host(name)

    def details(self) -> str:
        """Return the middle part of the text, which :func:`parse_fault` parses."""
        return ", ".join(self.host_names())

    @classmethod
    def parse(cls, at: float, duration: float, groups: dict[str, str]) -> Fault:
        """Return the fault whose :meth:`details` matched :attr:`pattern`."""
        raise NotImplementedError(f"{cls.__name__} does not override parse()")

    def __str__(self) -> str:
        text = f"{self.at!r} {self.keyword} {self.details()}".rstrip()
        return f"{text} for {self.duration!r}" if self.duration or self.has_duration else text


@dataclass(frozen=True, slots=True)
class HostFault(Fault):
    """Base class of faults of one host with a duration. By default the text has only the name of the host."""

    pattern: ClassVar[str] = r"(?P<host>\S+)"

    host: str = ""

    @property
    def has_duration(self) -> bool:
        """See :meth:`Fault.has_duration`."""
        return True

    def host_names(self) -> HostNames:
        """See :meth:`Fault.host_names`."""
        return (self.host,)

    @classmethod
    def parse(cls, at: float, duration: float, groups: dict[str, str]) -> Fault:
        """See :meth:`Fault.parse`."""
        return cls(at, duration, groups["host"])


@dataclass(frozen=True, slots=True)
class CrashFault(HostFault):
    """Crash of a host and its restart: ``crash backbone killed for 2.5``.

    :ivar after_persist: crash after the next persist within ``duration`` seconds, before dependent data is sent. If the
        power fails, and there is data that does not wait for the persist, crash between the two.
    """

    keyword: ClassVar[str] = "crash"
    pattern: ClassVar[str] = (
        rf"(?P<host>\S+) (?P<crash>{'|'.join(c.value for c in CrashMode)})(?P<between> once durable)?"
    )
    example: ClassVar[str] = "crash backbone power lost for 2.5"

    mode: CrashMode = CrashMode.KILLED
    after_persist: bool = False

    @property
    def ends_at(self) -> float:
        """See :meth:`Fault.ends_at`."""
        return self.at + (2 if self.after_persist else 1) * self.duration

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        host = network.host(self.host)
        if not host.up:
            return
        if self.after_persist:
            host.crash_after_persist(self.mode, self.duration)
            return
        host.stop(self.mode)
        network.call_in(self.duration, _unless_restarted(host, host.start))

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        return f"{self.host} {self.mode.value}{' once durable' if self.after_persist else ''}"

    @classmethod
    def parse(cls, at: float, duration: float, groups: dict[str, str]) -> Fault:
        """See :meth:`Fault.parse`."""
        return cls(at, duration, groups["host"], CrashMode(groups["crash"]), bool(groups["between"]))


@dataclass(frozen=True, slots=True)
class PauseFault(HostFault):
    """Pause of a host: ``pause sub-1 for 8.0``. It does not extend an earlier pause."""

    keyword: ClassVar[str] = "pause"
    example: ClassVar[str] = "pause sub-1 for 8.0"

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        host = network.host(self.host)
        if host.pause():
            network.call_in(self.duration, _unless_restarted(host, host.resume))


@dataclass(frozen=True, slots=True)
class ClockFault(HostFault):
    """Step of a clock, or a wrong rate for a while. The latest such fault determines the rate.

    ``clock sub-1 +3.5``, ``clock sub-1 x1.0002 for 60.0``.

    :ivar offset: step in seconds.
    :ivar rate: seconds counted per true second.
    """

    keyword: ClassVar[str] = "clock"
    pattern: ClassVar[str] = r"(?P<host>\S+)(?: (?P<by>[+-]\S+))?(?: x(?P<rate>\S+))?"
    example: ClassVar[str] = "clock sub-1 +3.5 x1.0002 for 60.0"

    offset: float = 0.0
    rate: float = 1.0

    @property
    def has_duration(self) -> bool:
        """See :meth:`Fault.has_duration`."""
        return self.rate != 1.0

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        host = network.host(self.host)
        host.set_clock(offset=self.offset, rate=None if self.rate == 1.0 else self.rate)
        if self.rate != 1.0:
            network.call_in(self.duration, partial(self._end, host))

    def _end(self, host: Host) -> None:
        if host.clock.rate == self.rate:
            host.set_clock(rate=1.0)

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        by = f" {self.offset:+}" if self.offset else ""
        return f"{self.host}{by}{f' x{self.rate!r}' if self.rate != 1.0 else ''}"

    @classmethod
    def parse(cls, at: float, duration: float, groups: dict[str, str]) -> Fault:
        """See :meth:`Fault.parse`."""
        by, rate = parse_number(groups["by"] or "0"), parse_number(groups["rate"] or "1")
        if not RATE_RANGE[0] <= rate <= RATE_RANGE[1]:
            raise ValueError(f"a clock cannot count {rate!r} s in one; give {RATE_RANGE[0]:g} to {RATE_RANGE[1]:g}")
        if not by and rate == 1.0:
            raise ValueError("the clock does not change; add a step such as +3.5, or a rate such as x1.5 for 60.0")
        return cls(at, duration, groups["host"], by, rate)


@dataclass(frozen=True, slots=True)
class LinkFault(Fault):
    """Impairment of links: ``link sub-1 -> backbone, pub-1 loss=0.3 jitter=0.2 for 10.0``.

    :ivar changes: fields of :class:`~fyrehose_twisted.sim.link.Link` and their values, as pairs.
    """

    keyword: ClassVar[str] = "link"
    pattern: ClassVar[str] = (
        rf"(?P<sources>{_NAMES}) (?P<arrow><?->) (?P<destinations>{_NAMES})(?P<changes>( \w+=[^\s=]+)*)"
    )
    example: ClassVar[str] = "link sub-1 -> backbone, pub-1 loss=0.3 jitter=0.2 for 10.0"

    sources: HostNames = ()
    destinations: HostNames = ()
    both_ways: bool = False
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def has_duration(self) -> bool:
        """See :meth:`Fault.has_duration`."""
        return True

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        sources, destinations = _addresses(network, self.sources), _addresses(network, self.destinations)
        values = self.link_changes()
        began = [network.override_links(sources, destinations, **values)]
        if self.both_ways:
            began.append(network.override_links(destinations, sources, **values))
        for change in began:
            network.call_in(self.duration, partial(network.remove_override, change))

    def link_changes(self) -> dict[str, Any]:
        """Return the changed link properties."""
        return dict(self.changes)

    def host_names(self) -> HostNames:
        """See :meth:`Fault.host_names`."""
        return tuple(dict.fromkeys(name for name in self.sources + self.destinations if name != ALL_HOSTS))

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        arrow = "<->" if self.both_ways else "->"
        changes = "".join(f" {name}={value!r}" for name, value in self.changes)
        return f"{', '.join(self.sources)} {arrow} {', '.join(self.destinations)}{changes}"

    @classmethod
    def parse(cls, at: float, duration: float, groups: dict[str, str]) -> Fault:
        """See :meth:`Fault.parse`."""
        changes = tuple(_parse_link_field(*change.split("=")) for change in groups["changes"].split())
        Link(**dict(changes))
        fault = cls(
            at,
            duration,
            tuple(groups["sources"].split(", ")),
            tuple(groups["destinations"].split(", ")),
            groups["arrow"] == "<->",
            changes,
        )
        if not fault.link_changes():
            raise ValueError("the link does not change; add a change such as loss=0.3")
        return fault


@dataclass(frozen=True, slots=True)
class PartitionFault(LinkFault):
    """Network partition: ``cut sub-1 -> backbone for 3.0``, or with ``<->`` both ways."""

    keyword: ClassVar[str] = "cut"
    pattern: ClassVar[str] = rf"(?P<sources>{_NAMES}) (?P<arrow><?->) (?P<destinations>{_NAMES})(?P<changes>)"
    example: ClassVar[str] = "cut sub-1 <-> * for 3.0"

    def link_changes(self) -> dict[str, Any]:
        """See :meth:`LinkFault.link_changes`."""
        return {"up": False}


FaultT = TypeVar("FaultT", bound=type[Fault])

_WORDS: dict[str, type[Fault]] = {}


def register_fault(kind: FaultT) -> FaultT:
    """Register a fault class for :func:`parse_fault`; usable as a decorator."""
    _WORDS[kind.keyword] = kind
    return kind


for _kind in (CrashFault, PauseFault, ClockFault, LinkFault, PartitionFault):
    register_fault(_kind)


def _parse_bool(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text == "True"


def parse_number(text: str) -> float:
    """Parse a finite number. :raises ValueError: if ``text`` is not one."""
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not -inf < found < inf:
        raise ValueError(f"{text!r} is out of range")
    return found


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _parse_optional(parse: Callable[[str], float]) -> Callable[[str], float | None]:
    return lambda text: None if text == "None" else parse(text)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "bool": _parse_bool,
    "float": parse_number,
    "int": _parse_int,
    "int | None": _parse_optional(_parse_int),
    "float | None": _parse_optional(parse_number),
}
_LINK_FIELD_PARSERS = {field.name: _PARSERS[str(field.type)] for field in fields(Link)}


def _parse_link_field(name: str, text: str) -> tuple[str, Any]:
    if name not in _LINK_FIELD_PARSERS:
        raise ValueError(f"links have no {name!r}; they have {', '.join(_LINK_FIELD_PARSERS)}")
    try:
        return name, _LINK_FIELD_PARSERS[name](text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def parse_fault(line: str) -> Fault:
    """Return the fault whose text is ``line``.

    :raises ValueError: if the line is invalid; the message describes the problem.
    """
    found = re.fullmatch(r"(?P<at>\S+) (?P<word>\S+) (?P<details>.*?)(?: for (?P<lasts>\S+))?", line)
    if found is None:
        raise ValueError(f"a fault needs a time, a keyword and its details, such as: 12.5 {PauseFault.example}")
    kind = _WORDS.get(found["word"])
    if kind is None:
        raise ValueError(f"unknown fault {found['word']!r}; the faults are {', '.join(sorted(_WORDS))}")
    details = re.fullmatch(kind.pattern, found["details"])
    if details is None:
        such_as = f", such as: {found['at']} {kind.example}" if kind.example else ""
        commas = '; names are separated by ", "' if re.search(r",\S|\s,", found["details"]) else ""
        raise ValueError(f"{found['details']!r} does not fit {kind.keyword}{such_as}{commas}")
    at, lasts = parse_number(found["at"]), parse_number(found["lasts"] or "0")
    if at < 0 or lasts < 0:
        raise ValueError("time and duration must not be negative")
    fault = kind.parse(at, lasts, details.groupdict())
    if found["lasts"] is None and fault.has_duration:
        raise ValueError(f"the duration is missing; add it: {line} for 3.0")
    return fault


def _unless_restarted(host: Host, action: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls ``action`` unless the host was started in the meantime."""
    boots = host.boots

    def act() -> None:
        if host.boots == boots:
            action()

    return act


def _addresses(network: Network, names: HostNames) -> list[Address] | None:
    return None if ALL_HOSTS in names else [network.host(name).address for name in names]
