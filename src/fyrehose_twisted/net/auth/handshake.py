"""Mutual authentication of connections by a shared secret.

Each end sends a nonce (``AUTH``). The dialling end then sends its proof (``PROOF``); the accepting end verifies it and
answers with its own. Where both ends dial, as with named pipes, the end with the lower nonce goes first. A proof
depends on both nonces and on the role of its end, so it cannot be replayed or reflected. A peer that
merely connects receives no proof. Data after the proofs is neither signed nor encrypted; use TLS where connections can
be tampered with.
"""

from __future__ import annotations

import hmac
import re
from contextlib import suppress
from enum import Enum
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost, NoProtocol
from twisted.internet.interfaces import IDelayedCall, IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.net.auth.authenticator import NONCE_SIZE, AuthenticationFailed, Authenticator
from fyrehose_twisted.net.connection import describe_failure

MAX_PROOF_LINE = 200
"""Largest line of the handshake in bytes, without CR LF."""
MAX_BLANK_LINES = 16
"""Empty lines accepted before the proof; links over pipes use them as keepalives."""
MAX_PENDING = 64
"""Connections of one factory that may authenticate at once. Another one evicts the oldest."""


_AUTH = re.compile(rb"AUTH ([0-9a-f]{%d})" % (2 * NONCE_SIZE))
_PROOF = re.compile(rb"PROOF ([0-9a-f]{64})")


class AuthRole(Enum):
    """Role of this end of a connection."""

    DIALLER = "dialler"
    ACCEPTOR = "acceptor"
    EITHER = "either"
    """Both ends dialled."""


@implementer(IStreamClientEndpoint)
class AuthClientEndpoint:
    """Client endpoint that authenticates each connection.

    :param endpoint: endpoint that dials.
    :param secret: shared secret, or an :class:`Authenticator` shared by endpoints and factories of one node.
    :param symmetric: whether both ends dial.
    """

    def __init__(
        self, endpoint: IStreamClientEndpoint, secret: bytes | Authenticator, reactor: Any, *, symmetric: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._authenticator = secret if isinstance(secret, Authenticator) else Authenticator(secret, reactor)
        self._role = AuthRole.EITHER if symmetric else AuthRole.DIALLER

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect and authenticate.

        :returns: a Deferred of the protocol, which fails with :class:`AuthenticationFailed`.
        """
        door = AuthFactory(protocolFactory, self._authenticator, self._role)

        def cancel(connected: Deferred[IProtocol]) -> None:
            dial.cancel()
            door.abandon_all()

        def failed(failure: Failure) -> None:
            if not connected.called:
                connected.errback(failure)

        connected: Deferred[IProtocol] = Deferred(cancel)
        door.connected = connected
        dial = self._endpoint.connect(door)
        dial.addCallbacks(lambda prover: None, failed)
        return connected


class AuthFactory(Factory):
    """Factory that authenticates connections and then hands them to protocols of another factory.

    :ivar connected: fires with the first protocol, or fails when there will be none.
    """

    noisy = False

    def __init__(self, factory: IProtocolFactory, authenticator: Authenticator, role: AuthRole) -> None:
        self._factory = factory
        self._authenticator = authenticator
        self._role = role
        self._pending: dict[AuthProtocol, None] = {}
        self.connected: Deferred[IProtocol] | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def startFactory(self) -> None:
        """Twisted: start the wrapped factory."""
        self._factory.doStart()

    def stopFactory(self) -> None:
        """Twisted: stop the wrapped factory."""
        self._factory.doStop()

    def buildProtocol(self, addr: Any) -> AuthProtocol:
        """Twisted: return a protocol that authenticates."""
        if len(self._pending) >= MAX_PENDING:
            next(iter(self._pending)).fail("crowded")
        prover = AuthProtocol(self, self._authenticator, self._role, addr)
        self._pending[prover] = None
        return prover

    def abandon_all(self) -> None:
        """Abort all pending connections without a report."""
        for prover in tuple(self._pending):
            prover.abandon()

    def authenticated(self, prover: AuthProtocol, addr: Any) -> IProtocol | None:
        """Return the protocol for an authenticated connection, ``None`` if the wrapped factory refuses it."""
        self._pending.pop(prover, None)
        return self._factory.buildProtocol(addr)

    def protocol_connected(self, protocol: IProtocol) -> None:
        """Report a protocol that took over its connection."""
        if self.connected is not None and not self.connected.called:
            self.connected.callback(protocol)

    def connection_ended(self, prover: AuthProtocol, problem: BaseException | None) -> None:
        """Handle the end of a pending connection."""
        self._pending.pop(prover, None)
        if self.connected is not None and not self.connected.called:
            self.connected.errback(problem or ConnectionLost())


def auth_server_factory(factory: IProtocolFactory, secret: bytes | Authenticator, reactor: Any) -> AuthFactory:
    """Return a factory for listening that authenticates connections for the protocols of ``factory``.

    :param secret: shared secret, or an :class:`Authenticator` shared by endpoints and factories of one node.
    """
    proving = secret if isinstance(secret, Authenticator) else Authenticator(secret, reactor)
    return AuthFactory(factory, proving, AuthRole.ACCEPTOR)


class AuthProtocol(Protocol):
    """Authentication on one connection, which is then handed to another protocol."""

    def __init__(self, factory: AuthFactory, authenticator: Authenticator, role: AuthRole, addr: Any) -> None:
        self._auth_factory = factory
        self._authenticator = authenticator
        self._role = role
        self._addr = addr
        self._source = str(getattr(addr, "host", "this machine"))
        self._buffer = b""
        self._nonce = b""
        self._blank_lines = 0
        self._proves_first = False
        """Whether this end proves first."""
        self._expected_proofs: list[tuple[bytes, bytes | None]] = []
        """Each proof that the peer may send, and that of this end, which is sent after it is verified."""
        self._timer: IDelayedCall | None = None
        self._finished = False
        self._protocol: IProtocol | None = None

    def connectionMade(self) -> None:
        """Twisted: send the nonce."""
        if self._finished:
            self._transport.abortConnection()
            return
        with suppress(AttributeError):  # Not every transport is TCP.
            self._transport.setTcpNoDelay(True)
        self._timer = self._authenticator.start_timer(self._timed_out)
        self._nonce = self._authenticator.new_nonce()
        self._transport.write(b"AUTH " + self._nonce.hex().encode() + b"\r\n")

    def dataReceived(self, data: bytes) -> None:
        """Twisted: parse received lines."""
        self._buffer += data
        while not self._finished:
            line, end, rest = self._buffer.partition(b"\r\n")
            if len(line) > MAX_PROOF_LINE:
                self.fail("overlong-line")
                return
            if not end:
                return
            self._buffer = rest
            self._handle_line(line)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: handle the end of the connection."""
        if self._protocol is not None:
            self._protocol.connectionLost(reason)
            self._auth_factory.connection_ended(self, reason.value)
        elif not self._finished:
            self._end()
            if isinstance(reason.value, ConnectionDone | ConnectionLost):
                self._authenticator.record_failure("closed", self._source)
                self._auth_factory.connection_ended(self, AuthenticationFailed("closed"))
            else:
                # With TLS, the connection opens before certificates are verified.
                self._authenticator.record_failure("broken", self._source, describe_failure(reason.value))
                self._auth_factory.connection_ended(self, reason.value)

    def fail(self, reason: str) -> None:
        """Abort the connection with one of :data:`REASONS`."""
        if self._finished:
            return
        self._end()
        self._authenticator.record_failure(reason, self._source)
        self._auth_factory.connection_ended(self, AuthenticationFailed(reason))
        self._abort()

    def abandon(self) -> None:
        """Abort the connection without a report."""
        self._end()
        self._abort()

    @property
    def _transport(self) -> Any:
        return self.transport

    def _abort(self) -> None:
        if self.transport is not None:
            self._transport.abortConnection()

    def _timed_out(self) -> None:
        self._timer = None
        self.fail("silent")

    def _end(self) -> None:
        self._finished = True
        self._buffer = b""
        self._authenticator.release_nonce(self._nonce)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _handle_line(self, line: bytes) -> None:
        if not line:
            self._blank_lines += 1
            if self._blank_lines > MAX_BLANK_LINES:
                self.fail("overlong-line")
        elif not self._expected_proofs:
            self._handle_nonce(line)
        else:
            self._handle_proof(line)

    def _handle_nonce(self, line: bytes) -> None:
        said = _AUTH.fullmatch(line)
        if said is None:
            self.fail("not-auth")
            return
        nonce = bytes.fromhex(said[1].decode())
        if self._authenticator.is_own_nonce(nonce):
            self.fail("reflected")
            return
        label = b"level-" if self._role is AuthRole.EITHER else b""
        self._proves_first = self._nonce < nonce if self._role is AuthRole.EITHER else self._role is AuthRole.DIALLER
        both = (self._nonce, nonce) if self._proves_first else (nonce, self._nonce)
        proofs = [
            [self._authenticator.compute_proof(label + role, *both, secret) for role in (b"first", b"second")]
            for secret in self._authenticator.secrets
        ]
        if self._proves_first:
            own, expected = proofs[0]
            self._expected_proofs = [(expected, None)]
            self._send_proof(own)
        else:
            # The peer proves one secret, and gets a proof of the same.
            self._expected_proofs = [(first, second) for first, second in proofs]

    def _handle_proof(self, line: bytes) -> None:
        said = _PROOF.fullmatch(line)
        if said is None:
            self.fail("not-proof")
            return
        given = bytes.fromhex(said[1].decode())
        for expected, own in self._expected_proofs:
            if hmac.compare_digest(given, expected):
                if own is not None:
                    self._send_proof(own)
                self._hand_over()
                return
        self.fail("wrong-proof")

    def _send_proof(self, proof: bytes) -> None:
        self._transport.write(b"PROOF " + proof.hex().encode() + b"\r\n")

    def _hand_over(self) -> None:
        rest = self._buffer
        self._end()
        protocol = self._auth_factory.authenticated(self, self._addr)
        if protocol is None:
            self._auth_factory.connection_ended(self, NoProtocol())
            self._abort()
            return
        self._protocol = protocol
        # From here on the transport calls the protocol directly.
        self.dataReceived = protocol.dataReceived  # type: ignore[method-assign]
        protocol.makeConnection(self._transport)
        self._auth_factory.protocol_connected(protocol)
        if rest:
            protocol.dataReceived(rest)
