"""MACs in DELIVERs: CPU time of backbone and subscriber in bursts, and the round trip of one message.

A publisher and a subscriber, a process each, share a backbone with a secret. They want MACs, or do not. In bursts, the
publisher publishes batches as fast as they are acknowledged. For the round trip, one process publishes a message,
receives it, and only then publishes the next one.

CPU times depend on the machine; compare the ratios of one run. Medians over rounds that alternate between the variants.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
from pathlib import Path

from race.servers import cpu_seconds, free_port
from results import add_option
from variants import (
    BATCH,
    PLAIN,
    SUBSCRIBER,
    TRIP,
    add_role_options,
    measure_bursts,
    measure_rounds,
    measure_singles,
    run_role,
)

from fyrehose_twisted.fyrehose.config import ClientConfig, MacPolicy

MACS = "MACs"
VARIANTS = (PLAIN, MACS)
BACKBONE = "backbone, µs"
SECRET = b"known to the backbone and its clients"


def start_backbone(directory: Path, port: int) -> subprocess.Popen[bytes]:
    """Start a backbone with the secret."""
    secret = directory / "secret"
    secret.touch(0o600)
    secret.write_bytes(SECRET)
    command = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "fyrehose-backbone"]
    command += [f"--state={directory / 'state'}.{port}", "--start-at=1", "--settle-time=0", f"--port={port}"]
    command += [f"--secret-file={secret}"]
    with (directory / f"backbone.{port}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def measure(options: argparse.Namespace, variant: str, directory: Path) -> dict[str, float]:
    """Measure a variant once."""
    port = free_port(socket.SOCK_DGRAM)
    backbone = start_backbone(directory, port)
    try:
        before: list[float] = []
        _, received = measure_bursts(
            options, variant, port, directory, lambda: before.append(cpu_seconds(backbone.pid))
        )
        used = 1e6 * (cpu_seconds(backbone.pid) - before[0]) / (options.messages // BATCH * BATCH)
        return {BACKBONE: used, SUBSCRIBER: received, TRIP: measure_singles(options, variant, port, directory)}
    finally:
        backbone.terminate()
        backbone.wait()


def main() -> None:
    """Run the rounds and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=100_000, help="in bursts, each round [%(default)s]")
    parser.add_argument("--singles", type=int, default=2_000, help="one at a time, each round [%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of a message [%(default)s]")
    add_option(parser, "mac")
    add_role_options(parser)
    options = parser.parse_args()
    if options.role:
        mac = MacPolicy.REQUIRE if options.variant == MACS else MacPolicy.OFF
        run_role(options, ClientConfig(journal=False, secret=SECRET, mac=mac))
        return
    measure_rounds(options, "mac", VARIANTS, lambda variant, directory: measure(options, variant, directory))


if __name__ == "__main__":
    main()
