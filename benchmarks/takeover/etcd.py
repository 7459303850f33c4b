"""Three etcd servers, and the pause of a watch through the JSON gateway of a follower."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from urllib.request import Request, urlopen

from parcels.etcd import EtcdCluster
from parcels.nodes import Unfit, fetch

from takeover.pauses import CALM, EVERY, PATIENCE, TRANSFER, Receipts, send_signal

PUT = {"key": "aw==", "value": "eA=="}


def pause(directory: Path, fault: str, rng: Random) -> float:
    """Return the seconds without an event when the leader has a fault."""
    with EtcdCluster(3, directory) as cluster:
        urls = [cluster.urls[index] for index in cluster.others]
        receipts = Receipts()
        over = threading.Event()
        threading.Thread(target=_watch, args=(urls[0], receipts), daemon=True).start()
        executor = ThreadPoolExecutor(512)
        publishing = threading.Thread(target=_publish, args=(urls, executor, over), daemon=True)
        publishing.start()
        try:
            deadline = time.monotonic() + PATIENCE
            while not receipts.times and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(rng.uniform(*CALM))
            since = time.monotonic()
            if fault == TRANSFER:
                member = fetch(f"{urls[0]}/v3/maintenance/status", {})["header"]["member_id"]
                target = {"targetID": member}
                fetch(f"{cluster.urls[cluster.leader]}/v3/maintenance/transfer-leadership", target, timeout=PATIENCE)
            else:
                send_signal(fault, cluster.nodes[cluster.leader].pid)
            while not receipts.are_steady(since):
                if time.monotonic() > since + PATIENCE:
                    raise Unfit(f"etcd did not come back within {PATIENCE:g} s")
                time.sleep(0.05)
            return receipts.longest_pause(since)
        finally:
            over.set()
            publishing.join()
            # Pending requests get no answer from a dead node.
            cluster.stop()
            executor.shutdown(cancel_futures=True)


def _watch(url: str, receipts: Receipts) -> None:
    request = Request(f"{url}/v3/watch", json.dumps({"create_request": {"key": PUT["key"]}}).encode())
    with suppress(OSError, ValueError), urlopen(request, timeout=PATIENCE) as answer:
        for line in answer:
            if b'"events"' in line:
                receipts.add()


def _publish(urls: list[str], executor: ThreadPoolExecutor, over: threading.Event) -> None:
    number = 0
    while not over.wait(EVERY):
        executor.submit(_put, urls[number % 2])
        number += 1


def _put(url: str) -> None:
    with suppress(OSError, ValueError):
        fetch(f"{url}/v3/kv/put", PUT, timeout=PATIENCE)
