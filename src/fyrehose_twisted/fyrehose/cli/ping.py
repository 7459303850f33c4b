"""``fyrehose ping``: measure round trips to a backbone."""

from __future__ import annotations

import argparse
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout

from fyrehose_twisted.fyrehose.cli.keys import mac_from_options
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.protocol.client import ClientProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.process.terminal import print_error, secret_from_options

_PERCENTILES = (("min", 0.0), ("median", 0.5), ("90%", 0.9), ("99%", 0.99), ("max", 1.0))


class Pinger(ClientProtocol):
    """Counts answers to KEEPALIVEs."""

    def __init__(self, config: ClientConfig, count: int) -> None:
        super().__init__(config)
        self.done: Deferred[None] = Deferred()
        self.round_trips: list[float] = []
        self._count = count

    def acknowledged(self, round_trip: float) -> None:
        self.round_trips.append(round_trip)
        if len(self.round_trips) == self._count:
            self.done.callback(None)


async def ping(options: argparse.Namespace, reactor: Any) -> int:
    """Run the command and return its exit status."""
    config = ClientConfig(
        subscribe=False,
        journal=False,
        keepalive_interval=options.interval,
        secret=secret_from_options(options),
        mac=mac_from_options(options),
    )
    pinger = await join(reactor, Pinger(config, options.count), options.backbone, timeout=options.connect_timeout)
    pinger.done.addTimeout(options.count * options.interval + 5, reactor)
    try:
        await pinger.done
    except DeferredTimeout:
        pass  # What was answered until then is what there is to report.
    except CancelledError:
        if not pinger.round_trips:
            raise
    await pinger.leave()
    if not pinger.round_trips:
        return print_error(f"no KEEPALIVE of {options.count} was answered by {options.backbone}")
    times = sorted(1e3 * seconds for seconds in pinger.round_trips)
    columns = [f"{name} {times[round(share * (len(times) - 1))]:.3f}" for name, share in _PERCENTILES]
    print(f"{len(times)} of {options.count} answered by {options.backbone}, round trip in ms: {', '.join(columns)}")
    return 0 if len(times) == options.count else 1
