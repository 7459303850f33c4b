"""``fyrehose freenet status`` and ``publish``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from fyrehose_twisted.errors import ConfigurationError, OperationalError, PublishRefused
from fyrehose_twisted.freenet.wire.messages import MAX_DATA
from fyrehose_twisted.freenet.wire.signing import SigningKey, is_signed, parse_key
from fyrehose_twisted.net.control.client import ControlClient, with_timeout
from fyrehose_twisted.net.control.line_input import MAX_IN_FLIGHT, LineSender, send_standard_input
from fyrehose_twisted.net.control.output import print_status
from fyrehose_twisted.process.terminal import format_table
from fyrehose_twisted.wording import pluralize

MAX_NUMBER_ATTEMPTS = 16
"""Maximum number of numbers tried for a signed packet."""


# status


async def show_status(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    return await print_status(format_status, options, node, reactor)


def format_status(state: dict[str, Any]) -> Iterable[str]:
    """Return the status as lines of text."""
    if state["node"] is None:
        yield "the node is starting"
        return
    requests = pluralize(state["requests"], "request")
    yield f"node {state['node']} at {state['location']:.6f} on the ring, {requests} pending"
    yield ""
    yield "neighbours"
    yield from format_table(
        ("node", "location", "linked", "silent for"),
        (
            (
                neighbour["node"],
                f"{neighbour['location']:.6f}",
                "yes" if neighbour["linked"] else "no",
                "-" if neighbour["silent"] is None else f"{neighbour['silent']:.0f} s",
            )
            for neighbour in state["neighbours"]
        ),
    )
    yield ""
    yield "streams"
    yield from format_table(
        ("key", "location", "phase", "parent", "subscribers", "own", "newest"),
        (
            (
                stream["key"],
                f"{stream['location']:.6f}",
                stream["phase"],
                "(root)" if stream["is_root"] else stream["parent"] or "-",
                len(stream["subscribers"]),
                "yes" if stream["local"] else "no",
                "-" if stream["newest"] is None else f"{stream['newest']:,}",
            )
            for stream in state["streams"]
        ),
    )
    if state["counts"]:
        yield ""
        yield "counts"
        yield from format_table(("event", "count"), ((name, f"{n:,}") for name, n in sorted(state["counts"].items())))


# publish


async def publish(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    key = parse_key(options.key)
    signing = None if options.key_file is None else SigningKey.read(options.key_file)
    if signing is not None and signing.key != key:
        raise ConfigurationError(f"--key-file {options.key_file} is the key of {signing.key.hex()}, not {key.hex()}")
    if signing is None and is_signed(key):
        raise ConfigurationError(f"packets of {key.hex()} must be signed; give --key-file FILE")
    if options.number is not None and not options.packet:
        raise ConfigurationError("--number requires a packet on the command line; it does not apply to standard input")
    sender = PacketSender(node, key, signing, options.number, reactor, options.timeout, options.allow)
    if options.packet:
        print(await sender.send(" ".join(options.packet).encode("utf-8", "surrogateescape")))
        return 0
    return await send_standard_input(
        PacketLineSender(MAX_DATA, "packets", sender.send, sender.window), reactor, "not published"
    )


class PacketSender:
    """Publisher of packets through a node.

    :param signing: signing key, ``None`` for an unsigned stream. Numbers of signed packets are chosen here, since the
        signature covers the number.
    :param number: packet number; ``None`` for the next one.
    :param allow_no_subscribers: publish even if the stream has no other subscriber.
    :ivar window: maximum number of packets in flight. It is 1 for signed packets, whose numbers are consecutive only if
        each is known before the next packet is signed.
    """

    def __init__(
        self,
        node: ControlClient,
        key: bytes,
        signing: SigningKey | None,
        number: int | None,
        reactor: Any,
        timeout: float,
        allow_no_subscribers: bool,
    ) -> None:
        self.window = MAX_IN_FLIGHT if signing is None else 1
        self._node = node
        self._key = key
        self._signing = signing
        self._fixed_number = number
        self._next_number: int | None = None
        self._reactor = reactor
        self._timeout = timeout
        self._allow = allow_no_subscribers

    async def send(self, packet: bytes) -> int:
        """Publish a packet and return its number.

        :raises PublishRefused: if the packet was not published.
        :raises NotConnected: if the node does not answer.
        """
        for _ in range(MAX_NUMBER_ATTEMPTS):
            number, data = self._fixed_number, packet
            if self._signing is not None:
                number = await self._free_number() if number is None else number
                data = self._signing.sign(number, packet)
            text = data.decode("utf-8", "surrogateescape")
            request = {"ask": "publish", "key": self._key.hex(), "data": text, "number": number}
            pending = self._node.request_numbered(**request, allow_no_subscribers=self._allow)
            answer = await with_timeout(pending, self._reactor, self._timeout)
            assigned, free = answer.get("number"), answer.get("next")
            if isinstance(assigned, int):
                self._next_number = assigned + 1
                return assigned
            if self._signing is None or self._fixed_number is not None or not isinstance(free, int):
                break
            self._next_number = free
        raise PublishRefused(str(answer.get("why", "")), str(answer.get("error", "the node sent an unknown answer")))

    async def _free_number(self) -> int:
        if self._next_number is None:
            answer = await with_timeout(
                self._node.request(ask="next", key=self._key.hex()), self._reactor, self._timeout
            )
            number = answer.get("next")
            if not isinstance(number, int):
                raise OperationalError(str(answer.get("error", "the node did not return a packet number")))
            self._next_number = number
        return self._next_number


class PacketLineSender(LineSender):
    """Sender of the lines of standard input. It prints the packet numbers."""

    def acknowledged(self, line: int, sequence: int) -> None:
        """See :class:`~fyrehose_twisted.process.line_publisher.LinePublisher`."""
        print(sequence)
