"""Sealed payloads beside plain ones: CPU time of publisher and subscriber in bursts, and the round trip of one message.

A publisher and a subscriber, a process each, share a backbone. In bursts, the publisher publishes batches as fast as
they are acknowledged. Its CPU time includes its own stream, which it receives like every publisher and does not open.
For the round trip, one process publishes a message, receives it, opens it, and only then publishes the next one.

CPU times depend on the machine; compare the ratios of one run. Medians over rounds that alternate between the variants.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import SystemRandom
from typing import Any

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
from fyrehose_twisted.sealing.key_file import create_key_ring, create_signing_key
from fyrehose_twisted.sealing.key_ring import KeyRing, check_stream_uri
from fyrehose_twisted.sealing.keys import KEY_SIZE, SealKey
from fyrehose_twisted.sealing.signing import SigningKey

CHACHA, AES, SIGNED = "ChaCha20-Poly1305", "AES-256-GCM", "AES-256-GCM, signed"
VARIANTS = (PLAIN, CHACHA, AES, SIGNED)
PUBLISHER = "publisher, µs"


def make_keys(directory: Path) -> None:
    """Create the key files of the variants."""
    signing = SigningKey.generate()
    create_signing_key(directory / "signing", signing)
    for variant in VARIANTS[1:]:
        algorithm = "chacha20-poly1305" if variant == CHACHA else "aes-256-gcm"
        key = SealKey(algorithm, SystemRandom().randbytes(KEY_SIZE))
        publishers = {"bench": signing.public} if variant == SIGNED else {}
        create_key_ring(directory / variant, KeyRing(check_stream_uri("bench"), [key], publishers))


def use_keys(options: argparse.Namespace, client: Any) -> None:
    """Have a client seal what it publishes and open what it receives, as its role and variant require."""
    from fyrehose_twisted.sealing.key_source import KeySource

    if options.variant != PLAIN:
        signing = options.keys / "signing" if options.variant == SIGNED else None
        keys = KeySource(options.keys / options.variant, signing_key_path=signing)
        client.sealer = None if options.role == "subscriber" else keys.sealer
        client.opener = None if options.role == "publisher" else keys.opener


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
    add_option(parser, "seal")
    add_role_options(parser)
    options = parser.parse_args()
    if options.role:
        run_role(options, ClientConfig(journal=False), lambda client: use_keys(options, client))
        return
    measure_rounds(
        options, "seal", VARIANTS, lambda variant, directory: measure(options, variant, directory), make_keys
    )


if __name__ == "__main__":
    main()
