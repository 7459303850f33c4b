"""One connection of a publisher to a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from secrets import token_bytes
from typing import Any, Protocol

from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure

from fyrehose_twisted.net.connection import LinkLimits
from fyrehose_twisted.parcels.protocol import ParcelProtocol
from fyrehose_twisted.parcels.wire.auth import dialler_proof, same_proof, welcome_proof
from fyrehose_twisted.parcels.wire.codec import ParcelCodec
from fyrehose_twisted.parcels.wire.messages import (
    Hello,
    Message,
    NotPublished,
    Parcel,
    ParcelType,
    Proof,
    Publish,
    Published,
    Refusal,
    Refused,
    Run,
    Welcome,
)

NONCE = 16
"""Bytes of a nonce."""

PING = Parcel(False, ParcelType.SEQ_REQ, 0)
"""Any node answers this, whatever it is at."""


class SessionState(Enum):
    """How far a session is."""

    GREETING = "greeting"
    OPEN = "open"
    OVER = "over"


class SessionOwner(Protocol):
    """Whoever a session reports to."""

    def session_opened(self, session: Session) -> None:
        """Both ends know who the other one is."""

    def session_refused(self, session: Session, why: Refusal, text: str) -> None:
        """The node will have nothing to do with this publisher, or the other way round."""

    def session_answered(self, session: Session, answer: Published | NotPublished) -> None:
        """Something became of events."""

    def session_ended(self, session: Session, reason: str) -> None:
        """The connection is over."""


class Session(ParcelProtocol):
    """Says hello, proves that it knows the secret, and publishes.

    :ivar heard_at: when the node was last heard of, by ``clock``.
    :ivar asked_at: when it was asked whether it is there, ``None`` if it has answered.
    :ivar when_gone: called when Twisted has let go of the connection.
    """

    def __init__(self, boss: SessionOwner, cluster: str, secret: bytes | None, clock: Any) -> None:
        super().__init__(ParcelCodec(), LinkLimits())
        self.state = SessionState.GREETING
        self.opened_at = self.heard_at = float(clock.seconds())
        self.asked_at: float | None = None
        self._boss = boss
        self._secret = secret
        self._clock = clock
        self.when_gone: Callable[[], None] = lambda: None
        self._hello = Hello(cluster, "", 0, 0, token_bytes(NONCE))

    def publish(self, runs: Sequence[Run]) -> None:
        """Send runs."""
        self.send([Publish(run) for run in runs])

    def ask(self, now: float) -> None:
        """Ask whether the node is there."""
        self.asked_at = now
        self.send([PING])

    def connection_ready(self) -> None:
        """See :class:`~fyrehose_twisted.parcels.protocol.ParcelProtocol`."""
        self.send([self._hello])

    def parcels_received(self, messages: Sequence[Message]) -> None:
        """See :class:`~fyrehose_twisted.parcels.protocol.ParcelProtocol`."""
        self.heard_at, self.asked_at = float(self._clock.seconds()), None
        for message in messages:
            match message:
                case Published() | NotPublished() if self.state is SessionState.OPEN:
                    self._boss.session_answered(self, message)
                case Welcome() if self.state is SessionState.GREETING:
                    self._welcomed(message)
                case Refused(why, text):
                    self._refuse(why, text)
                case _:
                    pass  # Its answer to a question, or what a newer node says.

    def connection_ended(self, reason: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.protocol.ParcelProtocol`."""
        self._over(reason)

    def leave(self) -> None:
        """Hang up; the owner is told nothing more."""
        self.state = SessionState.OVER
        self.hang_up()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection has ended."""
        super().connectionLost(reason)
        self.when_gone()

    def _welcomed(self, welcome: Welcome) -> None:
        if not same_proof(welcome_proof(self._secret, self._hello, welcome), welcome.proof):
            lacks = "has no secret" if self._secret is None else "does not know the secret"
            who = "this publisher" if self._secret is None else f"node {welcome.name}"
            self._refuse(Refusal.WRONG_SECRET, f"{who} {lacks}")
            return
        self.state = SessionState.OPEN
        self.send([Proof(dialler_proof(self._secret, self._hello, welcome))])
        self._boss.session_opened(self)

    def _refuse(self, why: Refusal, text: str) -> None:
        if self.state is not SessionState.OVER:
            self.leave()
            self._boss.session_refused(self, why, text)

    def _over(self, reason: str) -> None:
        if self.state is not SessionState.OVER:
            self.state = SessionState.OVER
            self._boss.session_ended(self, reason)
