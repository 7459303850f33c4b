"""Faults of the disks of hosts, besides the effects of crashes.

They apply only to hosts with a :class:`~fyrehose_twisted.sim.disk.disk.Disk`. A schedule with a disk fault of another
host is rejected before the run begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sim.faults.faults import Fault, HostFault, parse_number, register_fault
from fyrehose_twisted.sim.host import RESTART_DELAY

if TYPE_CHECKING:
    from fyrehose_twisted.sim.disk.disk import Disk, DiskImpairment
    from fyrehose_twisted.sim.network import Network


@dataclass(frozen=True, slots=True)
class DiskFault(HostFault):
    """Base class of faults of the disk of one host."""

    def disk(self, network: Network) -> Disk:
        """Return the affected disk.

        :raises ConfigurationError: if the host has none.
        """
        disk = network.host(self.host).disk
        if disk is None:
            raise ConfigurationError(f"{self.host} has no disk")
        return disk

    def check(self, network: Network) -> None:
        """See :meth:`Fault.check`."""
        self.disk(network)


@dataclass(frozen=True, slots=True)
class LastingDiskFault(DiskFault):
    """Base class of temporary disk impairments."""

    @property
    def ends_at(self) -> float:
        """See :meth:`Fault.ends_at`. Includes the restart of a process that the fault ended."""
        return self.at + self.duration + RESTART_DELAY

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        disk = self.disk(network)
        network.call_in(self.duration, partial(disk.clear_impairment, self.impair(disk)))

    def impair(self, disk: Disk) -> DiskImpairment:
        """Impair ``disk``."""
        raise NotImplementedError(f"{type(self).__name__} does not override impair()")


@register_fault
@dataclass(frozen=True, slots=True)
class FullDisk(LastingDiskFault):
    """Temporarily full disk: ``full journal-1 for 3.0``."""

    keyword: ClassVar[str] = "full"
    example: ClassVar[str] = "full journal-1 for 3.0"

    def impair(self, disk: Disk) -> DiskImpairment:
        """See :meth:`LastingDiskFault.impair`."""
        return disk.fill()


@register_fault
@dataclass(frozen=True, slots=True)
class ReadErrors(LastingDiskFault):
    """Temporary failure of all reads of a disk: ``bad-reads journal-1 for 3.0``."""

    keyword: ClassVar[str] = "bad-reads"
    example: ClassVar[str] = "bad-reads journal-1 for 3.0"

    def impair(self, disk: Disk) -> DiskImpairment:
        """See :meth:`LastingDiskFault.impair`."""
        return disk.fail_reads()


@register_fault
@dataclass(frozen=True, slots=True)
class SyncErrors(LastingDiskFault):
    """Temporary failure of all syncs of a disk: ``bad-syncs journal-1 for 3.0``."""

    keyword: ClassVar[str] = "bad-syncs"
    example: ClassVar[str] = "bad-syncs journal-1 for 3.0"

    def impair(self, disk: Disk) -> DiskImpairment:
        """See :meth:`LastingDiskFault.impair`."""
        return disk.fail_syncs()


@register_fault
@dataclass(frozen=True, slots=True)
class BitRot(DiskFault):
    """Flip of one durable bit, if any: ``rot journal-1 0.37 bit 3``.

    :ivar fraction: position of the byte: 0 is the first byte of the first file in order of names, 1 the end of all.
    :ivar bit: bit number, from 0 (least significant) to 7.
    """

    keyword: ClassVar[str] = "rot"
    pattern: ClassVar[str] = r"(?P<host>\S+) (?P<share>\S+) bit (?P<bit>[0-7])"
    example: ClassVar[str] = "rot journal-1 0.37 bit 3"

    fraction: float = 0.0
    bit: int = 0

    @property
    def has_duration(self) -> bool:
        """See :meth:`Fault.has_duration`."""
        return False

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        self.disk(network).flip_bits_at_fraction(self.fraction, 1 << self.bit)

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        return f"{self.host} {self.fraction!r} bit {self.bit}"

    @classmethod
    def parse(cls, at: float, duration: float, groups: dict[str, str]) -> Fault:
        """See :meth:`Fault.parse`.

        :raises ValueError: if the fraction is invalid.
        """
        share = parse_number(groups["share"])
        if not 0.0 <= share < 1.0:
            raise ValueError(f"{share!r} is not a fraction of the durable bytes; give 0 or more, and less than 1")
        return cls(at, duration, groups["host"], share, int(groups["bit"]))


@register_fault
@dataclass(frozen=True, slots=True)
class PowerLoss(DiskFault):
    """Power loss during a disk operation, followed by a restart:
    ``power-cut journal-1 after 345 bytes for 2.5``.

    The power is lost only if the disk exceeds ``cost`` within ``duration`` seconds. A host that is down at the start of
    the fault is not affected.

    :ivar cost: cost of disk operations before the loss: 1 for each byte written and for each other change.
    """

    keyword: ClassVar[str] = "power-cut"
    pattern: ClassVar[str] = r"(?P<host>\S+) after (?P<cost>[0-9]+) bytes"
    example: ClassVar[str] = "power-cut journal-1 after 345 bytes for 2.5"

    cost: int = 0

    @property
    def ends_at(self) -> float:
        """See :meth:`Fault.ends_at`."""
        return self.at + 2 * self.duration

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        host = network.host(self.host)
        if host.up:
            host.cut_power_after(self.cost, self.duration)

    def details(self) -> str:
        """See :meth:`Fault.details`."""
        return f"{self.host} after {self.cost} bytes"

    @classmethod
    def parse(cls, at: float, duration: float, groups: dict[str, str]) -> Fault:
        """See :meth:`Fault.parse`."""
        return cls(at, duration, groups["host"], int(groups["cost"]))
