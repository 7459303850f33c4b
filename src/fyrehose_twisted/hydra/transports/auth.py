"""Connections whose two ends show one another that they know a secret, before anything else is said.

Each end sends a nonce (``AUTH``). Then the end that dialled sends its proof (``PROOF``), and the other one, if that was
right, its own. Where both ends dial, as with named pipes, the one with the lower nonce goes first. A proof depends on
both nonces and on which end made it, so that none is of use on another connection, or sent back to whoever made it; and
whoever merely connects is shown none at all. What comes after the proofs is not protected: where others can reach into
a connection, TLS is needed.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost, NoProtocol
from twisted.internet.interfaces import IDelayedCall, IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError, RemoteError
from fyrehose_twisted.net.connection import describe_failure
from fyrehose_twisted.rate_limited_log import RateLimitedLog

TIMEOUT = 10.0
"""Seconds that proving may take."""
MAX_PROOF_LINE = 200
"""Bytes of a line of a proof, without CR LF."""
MAX_BLANK_LINES = 16
"""A link over pipes is kept alive with empty lines."""
MAX_PENDING = 64
"""Connections to one factory that may be proving; the one that has taken longest makes way for the next."""
NONCE_SIZE = 16
"""Bytes of a nonce."""

_AUTH = re.compile(rb"AUTH ([0-9a-f]{%d})" % (2 * NONCE_SIZE))
_PROOF = re.compile(rb"PROOF ([0-9a-f]{64})")

REASONS = {
    "not-auth": "it has no secret, or is no node",
    "not-proof": "what it sent is no proof",
    "wrong-proof": "it has another secret",
    "reflected": "it sent a nonce of ours",
    "overlong-line": "it sent more than a proof takes",
    "silent": f"it proved nothing for {TIMEOUT:g} s",
    "closed": "it closed the connection before it had proved anything; it may have another secret, or none",
    "broken": "the connection broke before anything was proved",
    "crowded": "too many others were proving",
}
"""Why a connection was given up, by the name under which it is counted."""


class AuthenticationFailed(RemoteError):
    """The other end has not shown that it knows the secret.

    :ivar reason: short stable name, one of :data:`REASONS`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"not proved: {REASONS[reason]}")
        self.reason = reason


class AuthRole(Enum):
    """Which end of a connection this is."""

    DIALLER = "dialler"
    ACCEPTOR = "acceptor"
    EITHER = "either"
    """Both have dialled."""


class Authenticator:
    """What the connections of one node prove, and the nonces that are under way on them.

    A nonce of ours that comes back on another connection shows that somebody put this node in touch with itself.

    :param secret: what all nodes of a network share.
    :param counted: told the name of the reason for each connection that was given up.
    """

    log = Logger()

    def __init__(self, secret: bytes, reactor: Any, on_failure: Callable[[str], None] | None = None) -> None:
        if not secret:
            raise ConfigurationError("an empty secret proves nothing")
        self._secret = secret
        self._reactor = reactor
        self._on_failure = on_failure
        self._rate_limited_log = RateLimitedLog(self.log, reactor.seconds)
        self._nonces: set[bytes] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {len(self._nonces)} under way>"

    def new_nonce(self) -> bytes:
        """Return a nonce that is ours until it is let go of."""
        nonce = secrets.token_bytes(NONCE_SIZE)
        self._nonces.add(nonce)
        return nonce

    def release_nonce(self, nonce: bytes) -> None:
        """Forget a nonce."""
        self._nonces.discard(nonce)

    def is_own_nonce(self, nonce: bytes) -> bool:
        """Say whether a nonce is one of ours."""
        return nonce in self._nonces

    def compute_proof(self, role: bytes, first: bytes, second: bytes) -> bytes:
        """Return what the end with a role proves.

        :param first: nonce of the end that proves first.
        """
        return hmac.digest(self._secret, b"hydra-proof\0" + role + b"\0" + first + second, "sha256")

    def start_timer(self, on_timeout: Callable[[], None]) -> IDelayedCall:
        """Call ``on_timeout`` when proving has taken too long."""
        timer: IDelayedCall = self._reactor.callLater(TIMEOUT, on_timeout)
        return timer

    def record_failure(self, reason: str, source: str, problem: str = "") -> None:
        """Count a connection that was given up, and say so."""
        if self._on_failure is not None:
            self._on_failure(reason)
        why = f"{REASONS[reason]}: {problem}" if problem else REASONS[reason]
        self._rate_limited_log.warn(reason, source, "hung up on {source}: {why}", why=why)


@implementer(IStreamClientEndpoint)
class AuthClientEndpoint:
    """Dials, and proves before anything else is said.

    :param endpoint: what dials.
    :param secret: what is shared, or what several endpoints and factories of one node prove with.
    :param symmetric: whether the other end dials, too.
    """

    def __init__(
        self, endpoint: IStreamClientEndpoint, secret: bytes | Authenticator, reactor: Any, *, symmetric: bool = False
    ) -> None:
        self._endpoint = endpoint
        self._authenticator = secret if isinstance(secret, Authenticator) else Authenticator(secret, reactor)
        self._role = AuthRole.EITHER if symmetric else AuthRole.DIALLER

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:  # noqa: N803
        """Return a Deferred that fires with the protocol, once both ends have proved; it fails with
        :class:`AuthenticationFailed`."""
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
    """Lets protocols of another factory speak on connections that have proved.

    :ivar connected: fires with the first of them, or when there will be none.
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
        """Twisted: somebody uses it."""
        self._factory.doStart()

    def stopFactory(self) -> None:
        """Twisted: nobody does any more."""
        self._factory.doStop()

    def buildProtocol(self, addr: Any) -> AuthProtocol:
        """Twisted: a connection is open."""
        if len(self._pending) >= MAX_PENDING:
            next(iter(self._pending)).fail("crowded")
        prover = AuthProtocol(self, self._authenticator, self._role, addr)
        self._pending[prover] = None
        return prover

    def abandon_all(self) -> None:
        """End all connections that have not proved; nobody is told."""
        for prover in tuple(self._pending):
            prover.abandon()

    def authenticated(self, prover: AuthProtocol, addr: Any) -> IProtocol | None:
        """Return what speaks on a connection now, ``None`` if it is not wanted."""
        self._pending.pop(prover, None)
        return self._factory.buildProtocol(addr)

    def protocol_connected(self, protocol: IProtocol) -> None:
        """What speaks on a connection has been told that it is open."""
        if self.connected is not None and not self.connected.called:
            self.connected.callback(protocol)

    def connection_ended(self, prover: AuthProtocol, problem: BaseException | None) -> None:
        """A connection ended before it came to that."""
        self._pending.pop(prover, None)
        if self.connected is not None and not self.connected.called:
            self.connected.errback(problem or ConnectionLost())


def auth_server_factory(factory: IProtocolFactory, secret: bytes | Authenticator, reactor: Any) -> AuthFactory:
    """Return a factory to listen with, whose protocols are those of ``factory`` once both ends have proved.

    :param secret: what is shared, or what several endpoints and factories of one node prove with.
    """
    proving = secret if isinstance(secret, Authenticator) else Authenticator(secret, reactor)
    return AuthFactory(factory, proving, AuthRole.ACCEPTOR)


class AuthProtocol(Protocol):
    """Proves on one connection, then lets another protocol speak on it."""

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
        self._expected_proof: bytes | None = None
        """What the other end has to prove."""
        self._own_proof: bytes | None = None
        """What this end proves, if that is right."""
        self._timer: IDelayedCall | None = None
        self._finished = False
        self._protocol: IProtocol | None = None

    def connectionMade(self) -> None:
        """Twisted: the connection is open."""
        if self._finished:
            self._transport.abortConnection()
            return
        with suppress(AttributeError):  # Not every transport is TCP.
            self._transport.setTcpNoDelay(True)
        self._timer = self._authenticator.start_timer(self._timed_out)
        self._nonce = self._authenticator.new_nonce()
        self._transport.write(b"AUTH " + self._nonce.hex().encode() + b"\r\n")

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes have come."""
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
        """Twisted: the connection has ended."""
        if self._protocol is not None:
            self._protocol.connectionLost(reason)
            self._auth_factory.connection_ended(self, reason.value)
        elif not self._finished:
            self._end()
            if isinstance(reason.value, ConnectionDone | ConnectionLost):
                self._authenticator.record_failure("closed", self._source)
                self._auth_factory.connection_ended(self, AuthenticationFailed("closed"))
            else:
                # With TLS, a connection is there before certificates are looked at.
                self._authenticator.record_failure("broken", self._source, describe_failure(reason.value))
                self._auth_factory.connection_ended(self, reason.value)

    def fail(self, reason: str) -> None:
        """Give the connection up, for one of :data:`REASONS`."""
        if self._finished:
            return
        self._end()
        self._authenticator.record_failure(reason, self._source)
        self._auth_factory.connection_ended(self, AuthenticationFailed(reason))
        self._abort()

    def abandon(self) -> None:
        """Give the connection up; nobody is told."""
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
        elif self._expected_proof is None:
            self._handle_nonce(line)
        else:
            self._handle_proof(line, self._expected_proof)

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
        proofs = [self._authenticator.compute_proof(label + role, *both) for role in (b"first", b"second")]
        own, self._expected_proof = proofs if self._proves_first else reversed(proofs)
        if self._proves_first:
            self._send_proof(own)
        else:
            self._own_proof = own

    def _handle_proof(self, line: bytes, expected: bytes) -> None:
        said = _PROOF.fullmatch(line)
        if said is None:
            self.fail("not-proof")
        elif not hmac.compare_digest(bytes.fromhex(said[1].decode()), expected):
            self.fail("wrong-proof")
        else:
            if self._own_proof is not None:
                self._send_proof(self._own_proof)
            self._hand_over()

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
        # From here on this is not in the way: the transport calls the protocol itself.
        self.dataReceived = protocol.dataReceived  # type: ignore[method-assign]
        protocol.makeConnection(self._transport)
        self._auth_factory.protocol_connected(protocol)
        if rest:
            protocol.dataReceived(rest)
