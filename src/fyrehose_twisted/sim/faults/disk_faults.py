"""What goes wrong with the disks of hosts, beside what a crash does to them.

Only a host that has a :class:`~fyrehose_twisted.sim.disk.disk.Disk` can have such a fault; a schedule that says
otherwise is refused before the run begins.
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
    """Base of faults of the disk of one host."""

    def disk(self, network: Network) -> Disk:
        """Return the disk that it concerns.

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
    """Base of faults for which something is wrong with a disk for a while."""

    @property
    def ends_at(self) -> float:
        """See :meth:`Fault.ends_at`. A process that ended because of it starts again a little later."""
        return self.at + self.duration + RESTART_DELAY

    def begin(self, network: Network) -> None:
        """See :meth:`Fault.begin`."""
        disk = self.disk(network)
        network.call_in(self.duration, partial(disk.clear_impairment, self.impair(disk)))

    def impair(self, disk: Disk) -> DiskImpairment:
        """Let something be wrong with ``disk``."""
        raise NotImplementedError(f"{type(self).__name__} does not say what is wrong")


@register_fault
@dataclass(frozen=True, slots=True)
class FullDisk(LastingDiskFault):
    """A disk takes no more than it holds for a while: ``full journal-1 for 3.0``."""

    keyword: ClassVar[str] = "full"
    example: ClassVar[str] = "full journal-1 for 3.0"

    def impair(self, disk: Disk) -> DiskImpairment:
        """See :meth:`LastingDiskFault.impair`."""
        return disk.fill()


@register_fault
@dataclass(frozen=True, slots=True)
class ReadErrors(LastingDiskFault):
    """Nothing can be read from a disk for a while: ``bad-reads journal-1 for 3.0``."""

    keyword: ClassVar[str] = "bad-reads"
    example: ClassVar[str] = "bad-reads journal-1 for 3.0"

    def impair(self, disk: Disk) -> DiskImpairment:
        """See :meth:`LastingDiskFault.impair`."""
        return disk.fail_reads()


@register_fault
@dataclass(frozen=True, slots=True)
class SyncErrors(LastingDiskFault):
    """Nothing can be made durable for a while: ``bad-syncs journal-1 for 3.0``."""

    keyword: ClassVar[str] = "bad-syncs"
    example: ClassVar[str] = "bad-syncs journal-1 for 3.0"

    def impair(self, disk: Disk) -> DiskImpairment:
        """See :meth:`LastingDiskFault.impair`."""
        return disk.fail_syncs()


@register_fault
@dataclass(frozen=True, slots=True)
class BitRot(DiskFault):
    """One bit flips of what is durable, if anything is: ``rot journal-1 0.37 bit 3``.

    :ivar fraction: which byte; 0 is the first of the first file in the order of names, and 1 is behind the last.
    :ivar bit: 0 for the lowest, to 7.
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

        :raises ValueError: if the share is none.
        """
        share = parse_number(groups["share"])
        if not 0.0 <= share < 1.0:
            raise ValueError(f"{share!r} is no share of what is durable; give 0 or more, and less than 1")
        return cls(at, duration, groups["host"], share, int(groups["bit"]))


@register_fault
@dataclass(frozen=True, slots=True)
class PowerLoss(DiskFault):
    """Power is cut in the middle of what a disk does, and the host starts again:
    ``power-cut journal-1 after 345 bytes for 2.5``.

    It is cut if the disk does more than that within the time that the host will be down, or else not at all. A host
    that is down when it begins is left alone.

    :ivar cost: how much the disk still does; beside each byte that is written, whatever else changes it costs 1.
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
