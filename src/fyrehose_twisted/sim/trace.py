"""Trace of a run in JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from fyrehose_twisted.effects import Address
from fyrehose_twisted.sim.observer import BegunFault, Observer, SimPacket

if TYPE_CHECKING:
    from fyrehose_twisted.sim.host import Host
    from fyrehose_twisted.sim.invariants import InvariantViolated
    from fyrehose_twisted.sim.network import Network


class TraceWriter(Observer):
    """Writer of a trace: one JSON object per line.

    Each has ``t``, seconds since the start of the run, ``kind``, and the fields of that kind.

    ==============================  ==========================================================================
    ``run``, the first, without t   ``scenario``, ``seed``, ``start`` in UTC seconds, ``nodes`` by name, ``python``
                                    and ``version`` that ran it, ``replay``, the command that runs it again, if known
    ``send``                        ``node``, ``to``, ``id``, ``size`` in bytes unless it is an object, ``what``
    ``arrive``                      ``node``, ``from``, ``id``; a duplicate has the ``id`` of its original; if changed
                                    in transit: true ``damaged`` or ``truncated`` or both, and the received ``what``
    ``drop``                        ``node`` of the destination, ``from``, ``id``, ``why``
    ``event``, ``persist``          ``node``, ``what``
    ``operation``                   ``node``, ``what``
    ``start``, ``pause``,           ``node``
    ``resume``
    ``stop``                        ``node``, ``what``: the kind of crash
    ``link``                        ``node``, ``to``, ``what``
    ``fault``                       ``what``, ``nodes``, ``until`` if it has a duration
    ``broken``                      ``invariant``, ``nodes``, ``what``; only ``end`` follows
    ``end``, the last               ``counts``
    ==============================  ==========================================================================

    Equal runs with the same ``python`` and ``version`` give equal bytes in any process.

    :param describe: describes a message, event or state in a few words.
    :param replay: command that repeats the run.
    """

    def __init__(
        self,
        network: Network,
        out: TextIO,
        *,
        scenario: str,
        seed: int,
        describe: Callable[[Any], str],
        replay: str | None = None,
    ) -> None:
        self._network = network
        self._out = out
        self._describe = describe
        names = [host.name for host in network.hosts.values()]
        run = {"kind": "run", "scenario": scenario, "seed": seed, "start": network.start, "nodes": names}
        # Other versions may draw other random numbers, or in another order.
        run |= {"python": f"{sys.version_info.major}.{sys.version_info.minor}", "version": _version()}
        self._line(run if replay is None else {**run, "replay": replay})

    def sent(self, packet: SimPacket) -> None:
        """See :class:`Observer`."""
        size = {"size": len(packet.data)} if isinstance(packet.data, bytes) else {}
        self._entry(
            "send",
            node=packet.source.name,
            to=self._name(packet.to),
            id=packet.number,
            **size,
            what=self._describe(packet.data),
        )

    def arrived(self, packet: SimPacket, host: Host) -> None:
        """See :class:`Observer`."""
        damage: dict[str, Any] = {}
        if packet.damaged:
            damage["damaged"] = True
        if packet.truncated:
            damage["truncated"] = True
        if damage:
            damage["what"] = self._describe(packet.data)
        self._entry("arrive", node=host.name, **{"from": packet.source.name}, id=packet.number, **damage)

    def dropped(self, packet: SimPacket, reason: str) -> None:
        """See :class:`Observer`."""
        self._entry("drop", node=self._name(packet.to), **{"from": packet.source.name}, id=packet.number, why=reason)

    def event_emitted(self, host: Host, event: Any) -> None:
        """See :class:`Observer`."""
        self._entry("event", node=host.name, what=self._describe(event))

    def persisted(self, host: Host, state: Any) -> None:
        """See :class:`Observer`."""
        self._entry("persist", node=host.name, what=self._describe(state))

    def operation_performed(self, host: Host, operation: str) -> None:
        """See :class:`Observer`."""
        self._entry("operation", node=host.name, what=operation)

    def started(self, host: Host) -> None:
        """See :class:`Observer`."""
        self._entry("start", node=host.name)

    def stopped(self, host: Host, description: str) -> None:
        """See :class:`Observer`."""
        self._entry("stop", node=host.name, what=description)

    def paused(self, host: Host) -> None:
        """See :class:`Observer`."""
        self._entry("pause", node=host.name)

    def resumed(self, host: Host) -> None:
        """See :class:`Observer`."""
        self._entry("resume", node=host.name)

    def connection_changed(self, host: Host, to: Address, change: str) -> None:
        """See :class:`Observer`."""
        self._entry("link", node=host.name, to=self._name(to), what=change)

    def fault_began(self, fault: BegunFault) -> None:
        """See :class:`Observer`."""
        until = {"until": round(self._network.elapsed + fault.ends_at - fault.at, 6)} if fault.duration else {}
        # Without its time, which is in ``t``.
        self._entry("fault", what=str(fault).partition(" ")[2], nodes=fault.host_names(), **until)

    def broken(self, violation: InvariantViolated) -> None:
        """Write the violation that ended the run."""
        self._entry("broken", invariant=violation.invariant, nodes=violation.nodes, what=violation.description)

    def end(self) -> None:
        """Write the last line, with the counters."""
        self._entry("end", counts=dict(sorted(self._network.counters.items())))

    def _name(self, address: Address) -> str:
        host = self._network.host_at(address)
        return f"{address[0]}:{address[1]}" if host is None else host.name

    def _entry(self, kind: str, **fields: Any) -> None:
        self._line({"t": round(self._network.elapsed, 6), "kind": kind, **fields})

    def _line(self, entry: dict[str, Any]) -> None:
        self._out.write(json.dumps(entry, separators=(",", ":")) + "\n")


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # Slow to import, and needed only for a trace.

    try:
        return version("fyrehose_twisted")
    except PackageNotFoundError:
        return "unknown"  # Source tree without an installation.
