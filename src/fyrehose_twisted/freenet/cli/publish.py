"""``fyrehose freenet status`` and ``publish``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.errors import ConfigurationError, OperationalError, PublishRefused
from fyrehose_twisted.freenet.wire.messages import MAX_DATA
from fyrehose_twisted.freenet.wire.signing import SigningKey, is_signed, parse_key
from fyrehose_twisted.net.control.client import ControlClient, with_timeout
from fyrehose_twisted.net.control.output import print_status
from fyrehose_twisted.process.terminal import LinePublisher, format_table, open_input, print_error
from fyrehose_twisted.wording import pluralize

MAX_IN_FLIGHT = 100
"""Packets that are waited for at once."""
MAX_NUMBER_ATTEMPTS = 16
"""How often a signed packet whose number is taken gets another one."""


# status


async def show_status(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    return await print_status(format_status, options, node, reactor)


def format_status(state: dict[str, Any]) -> Iterable[str]:
    """Return lines for people."""
    if state["node"] is None:
        yield "the node is starting"
        return
    requests = pluralize(state["requests"], "request")
    yield f"node {state['node']} at {state['location']:.6f} on the ring; it waits for {requests}"
    yield ""
    yield "neighbours"
    yield from format_table(
        ("node", "location", "linked", "silent for"),
        (
            (
                one["node"],
                f"{one['location']:.6f}",
                "yes" if one["linked"] else "no",
                "-" if one["silent"] is None else f"{one['silent']:.0f} s",
            )
            for one in state["neighbours"]
        ),
    )
    yield ""
    yield "streams"
    yield from format_table(
        ("key", "location", "phase", "parent", "subscribers", "own", "newest"),
        (
            (
                one["key"],
                f"{one['location']:.6f}",
                one["phase"],
                "(root)" if one["is_root"] else one["parent"] or "-",
                len(one["subscribers"]),
                "yes" if one["local"] else "no",
                "-" if one["newest"] is None else f"{one['newest']:,}",
            )
            for one in state["streams"]
        ),
    )
    if state["counts"]:
        yield ""
        yield "counts"
        yield from format_table(
            ("what", "how often"), ((name, f"{n:,}") for name, n in sorted(state["counts"].items()))
        )


# publish


async def publish(options: argparse.Namespace, node: ControlClient, reactor: Any) -> int:
    """Run the command and return its exit status."""
    key = parse_key(options.key)
    signing = None if options.key_file is None else SigningKey.read(options.key_file)
    if signing is not None and signing.key != key:
        raise ConfigurationError(f"--key-file {options.key_file} is the key of {signing.key.hex()}, not {key.hex()}")
    if signing is None and is_signed(key):
        raise ConfigurationError(f"packets of {key.hex()} have to be signed: give --key-file FILE")
    if options.number is not None and not options.packet:
        raise ConfigurationError("--number goes with one packet, and not with standard input")
    bearer = PacketSender(node, key, signing, options.number, reactor, options.timeout, options.allow)
    if options.packet:
        print(await bearer.send(" ".join(options.packet).encode("utf-8", "surrogateescape")))
        return 0
    publisher = PacketLinePublisher(bearer)
    try:
        await publisher.read(open_input(None), reactor)
    except CancelledError:
        publisher.stop("interrupted")
        raise
    if publisher.problem is None:
        return 0
    missing = publisher.lines_read - publisher.published
    return print_error(f"{missing:,} of {pluralize(publisher.lines_read, 'line')} not published: {publisher.problem}")


class PacketSender:
    """Brings packets to a node.

    :param signing: what to sign with; numbers of signed packets are chosen here, for the signature is for one of them.
    :param number: of the packet; ``None`` for the next one.
    :param allow_no_subscribers: whether to publish even if the stream has no other subscriber.
    :ivar window: how many packets may be under way. The numbers of signed packets follow one another only if each is
        known before the next is signed.
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
        """Publish a packet; return its number.

        :raises PublishRefused: if it could not be.
        :raises NotConnected: if the node does not answer.
        """
        for _ in range(MAX_NUMBER_ATTEMPTS):
            number, data = self._fixed_number, packet
            if self._signing is not None:
                number = await self._free_number() if number is None else number
                data = self._signing.sign(number, packet)
            text = data.decode("utf-8", "surrogateescape")
            question = {"ask": "publish", "key": self._key.hex(), "data": text, "number": number}
            demand = self._node.request_numbered(**question, allow_no_subscribers=self._allow)
            answer = await with_timeout(demand, self._reactor, self._timeout)
            given, following = answer.get("number"), answer.get("next")
            if isinstance(given, int):
                self._next_number = given + 1
                return given
            if self._signing is None or self._fixed_number is not None or not isinstance(following, int):
                break
            self._next_number = following
        raise PublishRefused(str(answer.get("why", "")), str(answer.get("error", "the node answers nothing known")))

    async def _free_number(self) -> int:
        if self._next_number is None:
            answer = await with_timeout(
                self._node.request(ask="next", key=self._key.hex()), self._reactor, self._timeout
            )
            following = answer.get("next")
            if not isinstance(following, int):
                raise OperationalError(str(answer.get("error", "the node knows no number")))
            self._next_number = following
        return self._next_number


class PacketLinePublisher(LinePublisher):
    """Publishes each line of standard input, and prints the numbers."""

    def __init__(self, sender: PacketSender) -> None:
        super().__init__(MAX_DATA, "packets")
        self._sender = sender
        self._pending_sends = 0
        self._window_open: Deferred[None] | None = None

    async def when_room(self) -> None:
        """See :class:`~fyrehose_twisted.process.terminal.LinePublisher`."""
        if self._pending_sends >= self._sender.window:
            self._window_open = Deferred()
            await self._window_open

    def publish(self, line: bytes) -> Deferred[int]:
        """See :class:`~fyrehose_twisted.process.terminal.LinePublisher`."""
        self._pending_sends += 1
        return Deferred.fromCoroutine(self._publish_line(line))

    def acknowledged(self, line: int, sequence: int) -> None:
        """See :class:`~fyrehose_twisted.process.terminal.LinePublisher`."""
        print(sequence)

    def failed(self, line: int, error: BaseException | None) -> None:
        """See :class:`~fyrehose_twisted.process.terminal.LinePublisher`."""
        self.problem = self.problem or f"line {line:,}: {error}"

    async def _publish_line(self, line: bytes) -> int:
        try:
            return await self._sender.send(line)
        finally:
            self._pending_sends -= 1
            if self._window_open is not None:
                room, self._window_open = self._window_open, None
                room.callback(None)
