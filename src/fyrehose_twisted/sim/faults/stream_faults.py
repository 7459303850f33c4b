"""What goes wrong with stream connections, beside what :mod:`~fyrehose_twisted.sim.faults.faults` does to links and
hosts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from fyrehose_twisted.sim.faults.faults import Fault, Names, OfHost, number, readable

if TYPE_CHECKING:
    from fyrehose_twisted.sim.network import Network


@readable
@dataclass(frozen=True, slots=True)
class Reset(Fault):
    """The connections between two hosts are reset, and both sides are told: ``reset a b``."""

    word: ClassVar[str] = "reset"
    pattern: ClassVar[str] = r"(?P<host>\S+) (?P<other>\S+)"
    example: ClassVar[str] = "reset client server"

    host: str = ""
    other: str = ""

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        network.streams.reset(network.host(self.host), network.host(self.other))

    def names(self) -> Names:
        """See :meth:`Fault.names`."""
        return (self.host, self.other)

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        return f"{self.host} {self.other}"

    @classmethod
    def read(cls, at: float, lasts: float, found: dict[str, str]) -> Fault:
        """See :meth:`Fault.read`."""
        return cls(at, lasts, found["host"], found["other"])


@readable
@dataclass(frozen=True, slots=True)
class HalfOpen(Reset):
    """The connections between two hosts are reset for the second alone: ``half-open a b``.

    What the first one writes then is answered with a reset.
    """

    word: ClassVar[str] = "half-open"
    example: ClassVar[str] = "half-open client server"

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        network.streams.half_open(network.host(self.host), network.host(self.other))


@readable
@dataclass(frozen=True, slots=True)
class Refuse(OfHost):
    """A host refuses dials for a while, as if nobody listened: ``refuse a for 3.0``."""

    word: ClassVar[str] = "refuse"
    example: ClassVar[str] = "refuse server for 3.0"

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        host = network.host(self.host)
        network.streams.refuse(host)
        network.call_in(self.lasts, partial(network.streams.accept, host))


@readable
@dataclass(frozen=True, slots=True)
class SlowReader(OfHost):
    """A host reads slowly for a while: ``slow a 1000.0 for 5.0``, or ``slow a 1000.0 from b for 5.0``.

    :ivar rate: bytes a second, of all its connections together.
    :ivar source: the host whose connections alone are read slowly; empty for all.
    """

    word: ClassVar[str] = "slow"
    pattern: ClassVar[str] = r"(?P<host>\S+) (?P<rate>\S+)(?: from (?P<source>\S+))?"
    example: ClassVar[str] = "slow server 1000.0 for 5.0"

    rate: float = 1_000.0
    source: str = ""

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        source = network.host(self.source).address if self.source else None
        throttle = network.streams.slow(network.host(self.host), self.rate, source)
        network.call_in(self.lasts, partial(network.streams.hasten, throttle))

    def names(self) -> Names:
        """See :meth:`Fault.names`."""
        return (self.host, self.source) if self.source else (self.host,)

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        return f"{self.host} {self.rate!r}{f' from {self.source}' if self.source else ''}"

    @classmethod
    def read(cls, at: float, lasts: float, found: dict[str, str]) -> Fault:
        """See :meth:`Fault.read`.

        :raises ValueError: if the rate is none.
        """
        rate = number(found["rate"])
        if rate <= 0.0:
            raise ValueError(f"nobody reads {found['rate']} bytes a second: give more than 0")
        return cls(at, lasts, found["host"], rate, found["source"] or "")
