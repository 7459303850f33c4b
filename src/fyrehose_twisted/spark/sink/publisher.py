"""Blocking publisher to a backbone, without Twisted."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from random import SystemRandom
from time import time
from types import TracebackType
from typing import Self

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, MessageTooLarge, NotConnected, OperationalError
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig, WindowConfig
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, MAX_DELIVERABLE
from fyrehose_twisted.host_addresses import address_from_socket
from fyrehose_twisted.spark.sink.threaded_client import ThreadedClient, bind_towards

KERNEL_BUFFER = 4 * 2**20
"""Socket buffer size for each direction, in bytes."""

BATCH_MESSAGES = 256
"""Messages per call to the client thread."""

MAX_IN_FLIGHT = WindowConfig().maximum
ACK_TIMEOUT = 5.0
PUBLISH_TIMEOUT = OutboxConfig().timeout


class BlockingPublisher:
    """Blocking publisher and context manager: entering it connects, leaving it disconnects.

    Messages are DATA as on the wire. For deduplication, wrap payloads first with
    :func:`~fyrehose_twisted.fyrehose.wire.envelope.wrap`. The backbone acknowledges a message by returning it with its
    number. Until then the message is retransmitted, so the backbone may number it twice.

    :param backbone: ``HOST:PORT``; for backbones that take over from one another, one or more, separated by commas.
    :param secret: the backbone's shared secret.
    :param ack_timeout: seconds to wait for the backbone's first answer.
    :param publish_timeout: seconds to wait for the backbone to return a message.
    :param max_in_flight: limit of messages in flight.
    """

    def __init__(
        self,
        backbone: str,
        *,
        secret: bytes | None = None,
        ack_timeout: float = ACK_TIMEOUT,
        publish_timeout: float = PUBLISH_TIMEOUT,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self.backbone = backbone
        self._secret = secret
        self._ack_timeout = ack_timeout
        self._outbox = OutboxConfig(
            raw=True,
            queue_messages=4 * max_in_flight,
            timeout=publish_timeout,
            window=WindowConfig(
                initial=min(WindowConfig().initial, max_in_flight),
                minimum=min(WindowConfig().minimum, max_in_flight),
                maximum=max_in_flight,
            ),
        )
        self._client: ThreadedClient | None = None

    def __enter__(self) -> Self:
        """Connect.

        :raises ConfigurationError: if the backbone is not ``HOST:PORT``.
        :raises OperationalError: if its name has no IP address.
        :raises NotConnected: if it does not answer in time.
        """
        addresses = resolve_backbones(self.backbone)
        sock = bind_towards(addresses[0], KERNEL_BUFFER)
        # A token is valid for one address, so the client needs its own address if there is a secret.
        own = ANY_ADDRESS if self._secret is None else address_from_socket(sock.getsockname())
        if not can_be_packed(own):
            sock.close()
            raise ConfigurationError(f"a secret requires an address that packets can carry, unlike {own[0]}")
        config = ClientConfig(raw=True, journal=False, secret=self._secret, address=own, outbox=self._outbox)
        room = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        self._client = ThreadedClient(Client(addresses, config, SystemRandom(), time(), receive_buffer=room), sock)
        self._client.start()
        try:
            if not self._client.wait_connected(self._ack_timeout):
                secret = "does it need a secret" if self._secret is None else "is the secret the same there"
                raise NotConnected(
                    f"backbone {self.backbone} did not answer within {self._ack_timeout:g} s;"
                    f" is it running, {secret}, and does it admit this address?"
                )
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def published(self) -> int:
        """Number of acknowledged messages."""
        return self._connected_client.published

    @property
    def sequence_range(self) -> tuple[int, int]:
        """Lowest and highest number of the acknowledged messages; zeros if there are none."""
        return self._connected_client.first, self._connected_client.last

    def publish(self, messages: Iterable[bytes]) -> None:
        """Publish ``messages``; block while the queue is full. Call :meth:`flush` to wait for acknowledgements.

        :raises MessageTooLarge: if a message exceeds a datagram; earlier messages may have been published.
        :raises PublishTimeout: if a message was not acknowledged in time.
        :raises SequenceRegressed: if the backbone reuses numbers.
        """
        part: list[bytes] = []
        for data in messages:
            if len(data) > MAX_DELIVERABLE:
                raise MessageTooLarge(len(data), MAX_DELIVERABLE)
            part.append(data)
            if len(part) == BATCH_MESSAGES:
                self._connected_client.enqueue(part)
                part = []
        if part:
            self._connected_client.enqueue(part)

    def flush(self) -> None:
        """Wait until all messages are acknowledged. Raises the errors of :meth:`publish`."""
        self._connected_client.flush()

    def close(self) -> None:
        """Disconnect. Unacknowledged messages may or may not have been published."""
        exchange, self._client = self._client, None
        if exchange is not None:
            exchange.close()

    @property
    def _connected_client(self) -> ThreadedClient:
        if self._client is None:
            raise NotConnected("the publisher is not connected; use it in a with statement")
        return self._client


def parse_backbone(backbone: str) -> Address:
    """Parse ``HOST:PORT``. :raises ConfigurationError: if ``backbone`` does not have that form."""
    host, _, port = backbone.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    if not host or (":" in host) != bracketed or not is_number or not 1 <= int(port) <= 65_535:
        raise ConfigurationError(f"backbone {backbone!r} is not HOST:PORT, such as 127.0.0.1:2323 or [::1]:2323")
    return host, int(port)


def parse_backbones(backbones: str) -> list[Address]:
    """Parse ``HOST:PORT`` or several, separated by commas. :raises ConfigurationError: if one has another form."""
    return list(dict.fromkeys(map(parse_backbone, backbones.split(","))))


def resolve_backbones(backbones: str) -> list[Address]:
    """Resolve ``HOST:PORT`` or several, separated by commas, to IP addresses and ports.

    :raises ConfigurationError: if one has another form.
    :raises OperationalError: if no host has an IP address.
    """
    parse_backbones(backbones)
    addresses, problems = [], []
    for backbone in backbones.split(","):
        try:
            addresses.append(resolve_backbone(backbone))
        except OperationalError as error:
            problems.append(error)
    if not addresses:
        raise problems[0]
    return list(dict.fromkeys(addresses))


def resolve_backbone(backbone: str) -> Address:
    """Resolve ``HOST:PORT`` to an IP address and port: IPv4 if there is one with a route, else IPv6.

    :raises ConfigurationError: if ``backbone`` does not have that form.
    :raises OperationalError: if the host has no IP address.
    """
    host, port = parse_backbone(backbone)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise OperationalError(f"{host!r} has no IP address ({error})") from error
    addresses = sorted((address_from_socket(name) for *_, name in found), key=lambda address: ":" in address[0])
    return next(filter(_has_route, addresses), addresses[0])


def _has_route(address: Address) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
    except OSError:
        return False
    return True
