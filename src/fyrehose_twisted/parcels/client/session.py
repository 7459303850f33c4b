"""One connection of a publisher to a node."""

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
"""Bytes of a nonce."""

PROBE = Parcel(False, ParcelType.SEQ_REQ, 0)
"""Any node answers this, whatever it is at."""


class PublisherConnectionState(Enum):
    """How far a session is."""

    HANDSHAKE = "greeting"
    OPEN = "open"
    CLOSED = "over"


class PublisherConnectionOwner(Protocol):
    """Whoever a session reports to."""

    def session_opened(self, session: PublisherConnection) -> None:
        """Both ends know who the other one is."""

    def session_refused(self, session: PublisherConnection, reason: RefusalReason, text: str) -> None:
        """The node will have nothing to do with this publisher, or the other way round."""

    def session_answered(self, session: PublisherConnection, answer: PublishAck | PublishNack) -> None:
        """Something became of events."""

    def session_ended(self, session: PublisherConnection, reason: str) -> None:
        """The connection is over."""


class PublisherConnection(ParcelProtocol):
    """Says hello, proves that it knows the secret, and publishes.

    :ivar heard_at: when the node was last heard of, by ``clock``.
    :ivar probed_at: when it was asked whether it is there, ``None`` if it has answered.
    :ivar on_closed: called when Twisted has let go of the connection.
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
        """Send runs."""
        self.send([Publish(run) for run in runs])

    def probe(self, now: float) -> None:
        """Ask whether the node is there."""
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
                    pass  # Its answer to a question, or what a newer node says.

    def connection_ended(self, reason: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.protocol.ParcelProtocol`."""
        self._finished(reason)

    def finish(self) -> None:
        """Hang up; the owner is told nothing more."""
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
