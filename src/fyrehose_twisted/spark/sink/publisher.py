"""Blocking publisher for a backbone, without Twisted."""

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
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, MAX_DELIVERABLE
from fyrehose_twisted.spark.sink.threaded_client import ThreadedClient, bind_towards

KERNEL_BUFFER = 4 * 2**20
"""Socket buffer size for each direction, in bytes."""

BATCH_MESSAGES = 256
"""Messages per call to the client thread."""

MAX_IN_FLIGHT = WindowConfig().maximum
ACK_TIMEOUT = 5.0
PUBLISH_TIMEOUT = OutboxConfig().timeout


class BlockingPublisher:
    """A publisher as a context manager: entering it connects, leaving it says goodbye.

    What it publishes is DATA as on the wire: whoever wants repeats to be recognised wraps payloads before, see
    :func:`~fyrehose_twisted.fyrehose.wire.envelope.wrap`. A message is sent until it is back, so it may be numbered
    twice.

    :param backbone: ``HOST:PORT``.
    :param secret: the backbone's shared secret.
    :param ack_timeout: seconds to wait for the backbone's first answer.
    :param publish_timeout: seconds for one message to come back.
    :param max_in_flight: messages under way at most.
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
        :raises OperationalError: if its name has no IPv4 address.
        :raises NotConnected: if it does not answer in time.
        """
        address = resolve_backbone(self.backbone)
        sock = bind_towards(address, KERNEL_BUFFER)
        # A token is made for one address, so with a secret the address has to be given.
        own = ANY_ADDRESS if self._secret is None else sock.getsockname()
        config = ClientConfig(raw=True, journal=False, secret=self._secret, address=own, outbox=self._outbox)
        room = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        self._client = ThreadedClient(Client(address, config, SystemRandom(), time(), receive_buffer=room), sock)
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
        """How many messages came back."""
        return self._connected_client.published

    @property
    def sequence_range(self) -> tuple[int, int]:
        """The lowest and the highest number that one got; zeros if none came back."""
        return self._connected_client.first, self._connected_client.last

    def publish(self, messages: Iterable[bytes]) -> None:
        """Publish each of ``messages``. Blocks as long as there is no room; :meth:`flush` waits for the last.

        :raises MessageTooLarge: if one does not fit a datagram; those before it may have been published.
        :raises PublishTimeout: if one did not come back in time.
        :raises SequenceRegressed: if the backbone gives numbers twice.
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
        """Wait until every message is back. Raises what :meth:`publish` does."""
        self._connected_client.flush()

    def close(self) -> None:
        """Say goodbye. What is not back yet may or may not have been published."""
        exchange, self._client = self._client, None
        if exchange is not None:
            exchange.close()

    @property
    def _connected_client(self) -> ThreadedClient:
        if self._client is None:
            raise NotConnected("the publisher is not connected; use it in a with statement")
        return self._client


def parse_backbone(backbone: str) -> Address:
    """Return both parts of ``HOST:PORT``. :raises ConfigurationError: if it is not that."""
    host, _, port = backbone.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 1 <= int(port) <= 65_535:
        raise ConfigurationError(f"backbone {backbone!r} is not HOST:PORT, such as 127.0.0.1:2323")
    return host, int(port)


def resolve_backbone(backbone: str) -> Address:
    """Return the IPv4 address and port of ``HOST:PORT``.

    :raises ConfigurationError: if it is not that.
    :raises OperationalError: if the name has no IPv4 address.
    """
    host, port = parse_backbone(backbone)
    try:
        return socket.gethostbyname(host), port
    except (OSError, UnicodeError) as error:
        raise OperationalError(f"{host!r} has no IPv4 address ({error})") from error
