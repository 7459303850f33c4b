"""Faults of stream connections, besides the faults of links and hosts in
:mod:`~fyrehose_twisted.sim.faults.faults`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from fyrehose_twisted.sim.faults.faults import Fault, HostFault, HostNames, parse_number, register_fault

if TYPE_CHECKING:
    from fyrehose_twisted.sim.network import Network


@register_fault
@dataclass(frozen=True, slots=True)
class Reset(Fault):
    """Reset of the connections between two hosts on both sides: ``reset a b``."""

    keyword: ClassVar[str] = "reset"
    pattern: ClassVar[str] = r"(?P<host>\S+) (?P<other>\S+)"
    example: ClassVar[str] = "reset client server"

    host: str = ""
    other: str = ""

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        network.streams.reset(network.host(self.host), network.host(self.other))

    def host_names(self) -> HostNames:
        """See :meth:`Fault.host_names`."""
        return (self.host, self.other)

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        return f"{self.host} {self.other}"

    @classmethod
    def parse(cls, at: float, duration: float, groups: dict[str, str]) -> Fault:
        """See :meth:`Fault.parse`."""
        return cls(at, duration, groups["host"], groups["other"])


@register_fault
@dataclass(frozen=True, slots=True)
class HalfOpen(Reset):
    """Reset of the connections between two hosts on the side of the second only: ``half-open a b``.

    The next write of the first host is answered with a reset.
    """

    keyword: ClassVar[str] = "half-open"
    example: ClassVar[str] = "half-open client server"

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        network.streams.half_open(network.host(self.host), network.host(self.other))


@register_fault
@dataclass(frozen=True, slots=True)
class DialRefusal(HostFault):
    """Temporary refusal of dials, as without a listening socket: ``refuse a for 3.0``."""

    keyword: ClassVar[str] = "refuse"
    example: ClassVar[str] = "refuse server for 3.0"

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        host = network.host(self.host)
        network.streams.refuse_dials(host)
        network.call_in(self.duration, partial(network.streams.accept_dials, host))


@register_fault
@dataclass(frozen=True, slots=True)
class SlowReader(HostFault):
    """Temporarily slow reads of a host: ``slow a 1000.0 for 5.0``, or ``slow a 1000.0 from b for 5.0``.

    :ivar rate: bytes per second of all affected connections together.
    :ivar source: name of the only host whose connections are affected; empty for all.
    """

    keyword: ClassVar[str] = "slow"
    pattern: ClassVar[str] = r"(?P<host>\S+) (?P<rate>\S+)(?: from (?P<source>\S+))?"
    example: ClassVar[str] = "slow server 1000.0 for 5.0"

    rate: float = 1_000.0
    source: str = ""

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        source = network.host(self.source).address if self.source else None
        throttle = network.streams.throttle_reads(network.host(self.host), self.rate, source)
        network.call_in(self.duration, partial(network.streams.remove_throttle, throttle))

    def host_names(self) -> HostNames:
        """See :meth:`Fault.host_names`."""
        return (self.host, self.source) if self.source else (self.host,)

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        return f"{self.host} {self.rate!r}{f' from {self.source}' if self.source else ''}"

    @classmethod
    def parse(cls, at: float, duration: float, groups: dict[str, str]) -> Fault:
        """See :meth:`Fault.parse`.

        :raises ValueError: if the rate is invalid.
        """
        rate = parse_number(groups["rate"])
        if rate <= 0.0:
            raise ValueError(f"invalid rate of {groups['rate']} bytes per second; give more than 0")
        return cls(at, duration, groups["host"], rate, groups["source"] or "")
