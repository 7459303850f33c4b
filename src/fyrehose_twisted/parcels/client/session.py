"""Connection of a publisher to a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from secrets import token_bytes
from typing import Any, Protocol

from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from fyrehose_twisted.net.connection import ConnectionLimits
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.wire.auth import dialler_proof, same_proof, welcome_proof
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import (
    Hello,
    Message,
    Parcel,
    ParcelType,
    Proof,
    Publish,
    PublishAck,
    PublisherRun,
    PublishNack,
    RefusalReason,
    Refused,
    Welcome,
)

NONCE_SIZE = 16
"""Size of a nonce in bytes."""

PROBE = Parcel(False, ParcelType.SEQ_REQ, 0)
"""Message that a node answers in every mode."""


class PublisherConnectionState(Enum):
    """State of a connection."""

    HANDSHAKE = "greeting"
    OPEN = "open"
    CLOSED = "over"


class PublisherConnectionOwner(Protocol):
    """Callbacks of a connection to its owner."""

    def session_opened(self, session: PublisherConnection) -> None:
        """Called when the handshake is complete."""

    def session_refused(self, session: PublisherConnection, reason: RefusalReason, text: str) -> None:
        """Called when the node refused this publisher, or the publisher the node."""

    def session_answered(self, session: PublisherConnection, answer: PublishAck | PublishNack) -> None:
        """Called with the reply to a publish request."""

    def session_ended(self, session: PublisherConnection, reason: str) -> None:
        """Called when the connection has ended."""


class PublisherConnection(ParcelProtocol):
    """Connection of a publisher: handshake, authentication and publish requests.

    :ivar heard_at: time of the node's last message, by ``clock``.
    :ivar probed_at: time of the unanswered probe, or ``None``.
    :ivar on_closed: called when Twisted has released the connection.
    """

    def __init__(self, session_owner: PublisherConnectionOwner, cluster: str, secret: bytes | None, clock: Any) -> None:
        super().__init__(ParcelCodec(), ConnectionLimits())
        self.state = PublisherConnectionState.HANDSHAKE
        self.opened_at = self.heard_at = float(clock.seconds())
        self.probed_at: float | None = None
        self._session_owner = session_owner
        self._secret = secret
        self._clock = clock
        self.on_closed: Callable[[], None] = lambda: None
        self._hello = Hello(cluster, "", 0, 0, token_bytes(NONCE_SIZE))

    def publish(self, runs: Sequence[PublisherRun]) -> None:
        """Send runs of events."""
        self.send([Publish(run) for run in runs])

    def probe(self, now: float) -> None:
        """Probe whether the node is alive."""
        self.probed_at = now
        self.send([PROBE])

    def connection_ready(self) -> None:
        """See :class:`~fyrehose_twisted.parcels.protocol.ParcelProtocol`."""
        self.send([self._hello])

    def parcels_received(self, messages: Sequence[Message]) -> None:
        """See :class:`~fyrehose_twisted.parcels.protocol.ParcelProtocol`."""
        self.heard_at, self.probed_at = float(self._clock.seconds()), None
        for message in messages:
            match message:
                case PublishAck() | PublishNack() if self.state is PublisherConnectionState.OPEN:
                    self._session_owner.session_answered(self, message)
                case Welcome() if self.state is PublisherConnectionState.HANDSHAKE:
                    self._welcome_received(message)
                case Refused(why, text):
                    self._refuse(why, text)
                case _:
                    pass  # A reply to a probe, or a message of a newer version.

    def connection_ended(self, reason: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.protocol.ParcelProtocol`."""
        self._finished(reason)

    def finish(self) -> None:
        """Close the connection without further callbacks to the owner."""
        self.state = PublisherConnectionState.CLOSED
        self.close()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection has ended."""
        super().connectionLost(reason)
        self.on_closed()

    def _welcome_received(self, welcome: Welcome) -> None:
        if not same_proof(welcome_proof(self._secret, self._hello, welcome), welcome.proof):
            lacks = "has no secret" if self._secret is None else "does not know the secret"
            who = "this publisher" if self._secret is None else f"node {welcome.name}"
            self._refuse(RefusalReason.WRONG_SECRET, f"{who} {lacks}")
            return
        self.state = PublisherConnectionState.OPEN
        self.send([Proof(dialler_proof(self._secret, self._hello, welcome))])
        self._session_owner.session_opened(self)

    def _refuse(self, reason: RefusalReason, text: str) -> None:
        if self.state is not PublisherConnectionState.CLOSED:
            self.finish()
            self._session_owner.session_refused(self, reason, text)

    def _finished(self, reason: str) -> None:
        if self.state is not PublisherConnectionState.CLOSED:
            self.state = PublisherConnectionState.CLOSED
            self._session_owner.session_ended(self, reason)
