"""Messages with keys beside plain ones: CPU time of publisher and subscriber in bursts, and the round trip of one.

A publisher and a subscriber, a process each, share a backbone. In bursts, the publisher publishes batches as fast as
they are acknowledged. For the round trip, one process publishes a message, receives it, and only then publishes the
next one. The subscriber looks at the data of each message.

CPU times depend on the machine; compare the ratios of one run. Medians over rounds that alternate between the variants.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from race.servers import start_ours
from results import add_option
from variants import (
    PLAIN,
    SUBSCRIBER,
    TRIP,
    add_role_options,
    measure_bursts,
    measure_rounds,
    measure_singles,
    run_role,
)

from fyrehose_twisted.fyrehose.config import ClientConfig

KEYED = "key of 8 bytes"
VARIANTS = (PLAIN, KEYED)
PUBLISHER = "publisher, µs"


def add_key_of_8_bytes(data: bytes) -> bytes:
    """Return a message with a key."""
    from fyrehose_twisted.fyrehose.wire.message_key import add_key

    return add_key(data, b"sensor-7")


def measure(options: argparse.Namespace, variant: str, directory: Path) -> dict[str, float]:
    """Measure a variant once."""
    backbone = start_ours(directory)
    try:
        port = backbone.ports[0]
        sent, received = measure_bursts(options, variant, port, directory)
        return {PUBLISHER: sent, SUBSCRIBER: received, TRIP: measure_singles(options, variant, port, directory)}
    finally:
        backbone.stop()


def main() -> None:
    """Run the rounds and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=50_000, help="in bursts, each round [%(default)s]")
    parser.add_argument("--singles", type=int, default=2_000, help="one at a time, each round [%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of a message [%(default)s]")
    add_option(parser, "keys")
    add_role_options(parser)
    options = parser.parse_args()
    if not options.role:
        measure_rounds(options, "keys", VARIANTS, lambda variant, directory: measure(options, variant, directory))
    elif options.variant == KEYED:
        run_role(options, ClientConfig(journal=False), make_payload=add_key_of_8_bytes)
    else:
        run_role(options, ClientConfig(journal=False))


if __name__ == "__main__":
    main()
