"""Load by h2load: a number of requests and their durations."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from race.servers import program

from parcels.figures import Figures, rates
from parcels.nodes import Unfit

PACKAGE = "nghttp2-client"


def run(url: str, body: Path, count: int, clients: int, streams: int, *options: str) -> Figures:
    """Make ``count`` POSTs over ``clients`` connections with ``streams`` in flight on each, and return the figures.

    :raises Missing: if it is not installed. :raises Unfit: if any request failed.
    """
    log = body.with_suffix(".requests")
    log.unlink(missing_ok=True)
    command = [program("h2load", PACKAGE), f"-n{count}", f"-c{clients}", f"-m{streams}", "-t1", f"-d{body}"]
    ended = subprocess.run(
        [*command, f"--log-file={log}", *options, url], capture_output=True, text=True, timeout=60, check=False
    )
    found = re.search(r"finished in ([\d.]+)(us|ms|s),", ended.stdout)
    succeeded = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", ended.stdout)
    if found is None or succeeded is None:
        raise Unfit(f"h2load said {ended.stdout[-500:]} {ended.stderr[-500:]}")
    if int(succeeded[1]) != count:
        raise Unfit(f"h2load: {succeeded[0]}, of {count:,}")
    seconds = float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]]
    times = [int(line.split()[2]) / 1e6 for line in log.read_text().splitlines()]
    return rates(times, seconds)


def timed(url: str, body: Path, seconds: float, clients: int, streams: int, *options: str) -> tuple[Figures, int]:
    """Warm up, then make requests for about ``seconds``; return figures and the total number of requests."""
    few = 20 * max(clients, streams) if clients * streams > 1 else 100
    rate = run(url, body, few, clients, streams, *options)["rate"]
    # A number and not a time, so that it can be compared with the state of the cluster.
    count = max(int(rate * seconds), few)
    return run(url, body, count, clients, streams, *options), few + count
