"""Base of the simulated network: hosts, links, time, counters and observers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from itertools import count, islice
from math import inf
from random import Random
from typing import Any, NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.observer import Observer, Observers, SimPacket
from fyrehose_twisted.sim.scheduler import Scheduler

MAX_LISTED_HOSTS = 10
"""Maximum number of host names in an error message."""


class LinkOverride(NamedTuple):
    """Temporary change of link properties. ``None`` stands for every host."""

    sources: frozenset[Address] | None
    destinations: frozenset[Address] | None
    changes: dict[str, Any]


class NetworkCore:
    """Base of :class:`~fyrehose_twisted.sim.network.Network`, which documents parameters and attributes."""

    def __init__(
        self, seed: int, link: Link | None, *, start: float, moment: float, split: float, split_seed: int
    ) -> None:
        if not 0.0 <= moment < inf:
            raise ValueError(f"moment={moment!r}; a time is 0 or more seconds")
        if not 0.0 <= split <= 1.0:
            raise ValueError(f"split={split!r}; a probability goes from 0 to 1")
        self.seed = seed
        self.scheduler = Scheduler(start)
        self.link = Link() if link is None else link
        self.hosts: dict[Address, Host] = {}
        self.counters: Counter[str] = Counter()
        self.observers = Observers()
        self.start = start
        self.moment = moment
        self.split = split
        self.split_rng = Random(f"{split_seed}/split")
        self.packet_numbers = count(1)
        self.link_version = 0
        self.active_host: Host | None = None
        self._names: dict[str, Host] = {}
        self._second_addresses: dict[Address, Host] = {}
        self._at_ip: dict[str, Host | None] = {}  # None if several hosts share the address
        self._link_overrides: list[LinkOverride] = []

    @property
    def now(self) -> float:
        """True virtual time, UTC seconds since 1970. The clocks of hosts may differ from it."""
        return self.scheduler.now

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the run."""
        return self.scheduler.now - self.start

    def host(self, name: str) -> Host:
        """Return the host with this name.

        :raises KeyError: if there is none; the message lists the first host names.
        """
        try:
            return self._names[name]
        except KeyError:
            raise KeyError(f"no host {name!r}; {self._list_hosts(name)}") from None

    def _list_hosts(self, instead_of: str) -> str:
        if not self._names:
            return "there are none"
        close = get_close_matches(instead_of, self._names, 1)
        there_are = f"did you mean {close[0]}? There are" if close else "there are"
        more = f" and {len(self._names) - MAX_LISTED_HOSTS:,} more" if len(self._names) > MAX_LISTED_HOSTS else ""
        return f"{there_are} {', '.join(islice(self._names, MAX_LISTED_HOSTS))}{more}"

    def host_at(self, address: Address) -> Host | None:
        """Return the host with this address, first or second."""
        return self.hosts.get(address) or self._second_addresses.get(address)

    def only_host_at(self, ip: str) -> Host | None:
        """Return the only host with this IP address; ``None`` if there are none or several."""
        return self._at_ip.get(ip)

    def run(self, seconds: float) -> None:
        """Advance virtual time."""
        self.scheduler.run_until(self.scheduler.now + seconds)

    def call_in(self, seconds: float, call: Callable[[], object]) -> None:
        """Schedule a call."""
        scheduler = self.scheduler
        scheduler.call_at(scheduler.now + seconds, call)

    # Links

    def override_links(
        self, sources: Iterable[Address] | None, destinations: Iterable[Address] | None, **changes: Any
    ) -> LinkOverride:
        """Change links from ``sources`` to ``destinations`` until :meth:`remove_override`.

        ``None`` stands for every host. Where overrides overlap, the latest one applies.

        :raises ConfigurationError: if a value is out of range.
        :raises TypeError: if links have no such property.
        """
        replace(self.link, **changes)  # Validates the changes here rather than at the next packet.
        change = LinkOverride(
            None if sources is None else frozenset(sources),
            None if destinations is None else frozenset(destinations),
            changes,
        )
        self._link_overrides.append(change)
        self.link_version += 1
        return change

    def remove_override(self, change: LinkOverride) -> None:
        """Remove an override."""
        self._link_overrides = [other for other in self._link_overrides if other is not change]
        self.link_version += 1

    def link_between(self, source: Host, to: Address) -> Link:
        """Return the current properties of the link from ``source`` to ``to``."""
        link = self.link
        if to in self._second_addresses:
            to = self._second_addresses[to].address
        for sources, destinations, changes in self._link_overrides:
            if (sources is None or source.address in sources) and (destinations is None or to in destinations):
                link = replace(link, **changes)
        return link

    def drop(self, packet: SimPacket, why: str) -> None:
        """Count a packet as dropped."""
        self.counters["dropped"] += 1
        self.counters[f"dropped: {why}"] += 1
        for observe in self.observers.dropped:
            observe(packet, why)

    def add_observer(self, observer: Observer) -> None:
        """Add an observer."""
        self.observers.add(observer)
