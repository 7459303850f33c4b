"""Multicast groups of a simulated network."""

from __future__ import annotations

from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network_core import NetworkCore


class MulticastGroups:
    """Members of multicast groups.

    A datagram may get lost once for all members, as on the port of the sender, and then for each.

    :ivar deaf: addresses of hosts to which nothing is forwarded that is sent to a group.
    """

    def __init__(self, network: NetworkCore) -> None:
        self.deaf: set[Address] = set()
        self._network = network
        self._members: dict[Address, dict[Address, bool]] = {}
        self._rngs: dict[tuple[str, Address], Random] = {}

    def join(self, host: Host, group: Address) -> None:
        """Make ``host`` a member of ``group``."""
        self._members.setdefault(group, {})[host.address] = True

    def leave(self, host: Host) -> None:
        """Make ``host`` receive nothing of any group. Observers still see it as one that is sent to."""
        for members in self._members.values():
            if host.address in members:
                members[host.address] = False

    def has_group(self, address: Address) -> bool:
        """Return whether ``address`` is that of a group: some host has joined it."""
        return address in self._members

    def forward(self, source: Host, group: Address) -> list[tuple[Address, str | None]]:
        """Return the members of ``group``, each with the reason why the next datagram of ``source`` does not reach it.

        Afterwards it may still get lost on the member's own link.
        """
        loss = self._network.link_between(source, group).loss
        members = self._members[group].items()
        if loss > 0 and self._rng(source, group).random() < loss:
            return [(member, "lost for all") for member, _ in members]
        return [(member, None if joined and member not in self.deaf else "not forwarded") for member, joined in members]

    def _rng(self, source: Host, group: Address) -> Random:
        key = source.name, group
        if key not in self._rngs:
            self._rngs[key] = Random(f"{self._network.seed}/{source.name}/group {group[0]}:{group[1]}")
        return self._rngs[key]
