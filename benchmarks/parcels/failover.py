"""Failover: time without an acknowledgement from the end of the leader to the next answer of another node.

The parcels cluster has a publisher with one event in flight, which starts at that very moment. etcd and PySyncObj get a
new request every 20 ms, so that a lost request does not delay their measurement.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from parcels.children import in_child, run_in_reactor
from parcels.etcd import EtcdCluster
from parcels.nodes import PATIENCE, Unfit, fetch
from parcels.ours import OurCluster
from parcels.syncobj import SyncObjCluster

SIZE = 3
OURS_KILLED, OURS_SILENT, ETCD, SYNCOBJ = "ours, killed", "ours, silent", "etcd, killed", "PySyncObj, killed"
ASK_EVERY = 0.02
CALM = (0.3, 0.8)
"""Maximum random delay before the end of the leader, so that it falls at any time between two heartbeats."""


def _publish_through(places: Sequence[tuple[str, int]], pid: int, number: int, calm: float) -> float:
    async def work(reactor: Any) -> float:
        from fyrehose_twisted.parcels.client.tcp_publisher import ParcelsPublisher

        publisher = ParcelsPublisher(list(places), timeout=PATIENCE)
        last = await publisher.publish(bytes(128))
        ends = time.monotonic() + calm
        while time.monotonic() < ends:
            last = _next(last, await publisher.publish(bytes(128)))
        since = time.monotonic()
        os.kill(pid, number)
        last = _next(last, await publisher.publish(bytes(128)))
        seconds = time.monotonic() - since
        for _ in range(20):
            last = _next(last, await publisher.publish(bytes(128)))
        await publisher.close()
        return seconds

    seconds: float = run_in_reactor(work)
    return seconds


def _next(last: int, number: int) -> int:
    # Each event of the only publisher must be ordered once.
    if number != last + 1:
        raise Unfit(f"event {number:,} came after {last:,}")
    return number


def ours(directory: Path, number: signal.Signals, rng: Random) -> float:
    """Return the seconds without an acknowledgement of a parcels cluster whose leader gets a signal."""
    with OurCluster(SIZE, directory) as cluster:
        places = [cluster.places[index] for index in cluster.others]
        leader = cluster.nodes[cluster.leader].pid
        return float(in_child(_publish_through, places, leader, int(number), rng.uniform(*CALM)))


def etcd(directory: Path, rng: Random) -> float:
    """Return the seconds without an acknowledgement of etcd whose leader is killed."""
    with EtcdCluster(SIZE, directory) as cluster:
        urls = [f"{cluster.urls[index]}/v3/kv/put" for index in cluster.others]
        ends = time.monotonic() + rng.uniform(*CALM)
        while time.monotonic() < ends:
            _put(urls[0])
        since = time.monotonic()
        cluster.nodes[cluster.leader].signal(signal.SIGKILL)
        executor = ThreadPoolExecutor(512)
        asked: set[Any] = set()
        try:
            while time.monotonic() < since + PATIENCE:
                asked.add(executor.submit(_put, urls[len(asked) % 2]))
                done, _ = wait(asked, ASK_EVERY, FIRST_COMPLETED)
                if answers := [when for each in done if (when := each.result()) is not None]:
                    return min(answers) - since
                # A failed node is not asked again; it keeps its index, so that the URLs alternate.
                time.sleep(ASK_EVERY if done else 0)
        finally:
            # Pending requests get no answer from a dead node.
            cluster.stop()
            executor.shutdown(cancel_futures=True)
    raise Unfit(f"etcd did not come back within {PATIENCE:g} s")


def _put(url: str) -> float | None:
    with suppress(OSError, ValueError):
        if "header" in fetch(url, {"key": "aw==", "value": "eA=="}, timeout=PATIENCE):
            return time.monotonic()
    return None


def syncobj(directory: Path, rng: Random) -> float:
    """Return the seconds without an acknowledgement of PySyncObj whose leader is killed."""
    with SyncObjCluster(SIZE, directory) as cluster:
        asked = cluster.others[0]
        ends = time.monotonic() + rng.uniform(*CALM)
        while time.monotonic() < ends:
            cluster.ask(asked, do="probe", patience=PATIENCE)
        since = time.monotonic()
        cluster.nodes[cluster.leader].signal(signal.SIGKILL)
        when = cluster.ask(asked, do="probe", patience=PATIENCE)
        if when is None:
            raise Unfit(f"PySyncObj did not come back within {PATIENCE:g} s")
        return float(when) - since
