"""Secret of a node, and the proofs that it computes from it."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from fyrehose_twisted.errors import ConfigurationError, RemoteError
from fyrehose_twisted.process.rate_limited_log import RateLimitedLog

TIMEOUT = 10.0
"""Seconds that authentication may take."""
NONCE_SIZE = 16
"""Size of a nonce in bytes."""
HYDRA = b"hydra"
"""Label of the proofs between hydra nodes."""

REASONS = {
    "not-auth": "it has no secret, or is not a node of this network",
    "not-proof": "it sent no valid proof",
    "wrong-proof": "it has a different secret",
    "reflected": "it sent one of this node's nonces",
    "overlong-line": "it sent more data than a proof needs",
    "silent": f"it did not authenticate within {TIMEOUT:g} s",
    "closed": "it closed the connection before it was authenticated; its secret may be different or missing",
    "broken": "the connection failed before it was authenticated",
    "crowded": "too many connections were pending authentication",
}
"""Readable reason for a failed authentication, by counter label."""


class AuthenticationFailed(RemoteError):
    """The peer did not prove that it knows the secret.

    :ivar reason: short stable reason, a key of :data:`REASONS`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"authentication failed: {REASONS[reason]}")
        self.reason = reason


class Authenticator:
    """Secret of one node and the nonces of its pending connections.

    If a nonce of this node arrives on another of its connections, a third party has connected the node to itself.

    :param secret: secret shared by all nodes of the network.
    :param on_failure: called with the reason of each failed authentication.
    :param label: name of the protocol, which its proofs depend on: a proof for one protocol is none for another with
        the same secret.
    :raises ConfigurationError: if the secret is empty.
    """

    log = Logger()

    def __init__(
        self,
        secret: bytes,
        reactor: Any,
        on_failure: Callable[[str], None] | None = None,
        *,
        label: bytes = HYDRA,
    ) -> None:
        if not secret:
            raise ConfigurationError("the secret is empty")
        self._secrets: tuple[bytes, ...] = (secret,)
        self._context = label + b"-proof\0"
        self._reactor = reactor
        self._on_failure = on_failure
        self._rate_limited_log = RateLimitedLog(self.log, reactor.seconds)
        self._nonces: set[bytes] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {len(self._nonces)} pending>"

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """Secrets that peers may prove; the first is the one that this node proves on its own account."""
        return self._secrets

    def set_secrets(self, secret: bytes, *others: bytes) -> None:
        """Replace the secrets for later connections.

        :param others: further secrets that a peer may prove, which then gets a proof of the same secret. So a secret
            can be replaced on one node after the other.
        :raises ConfigurationError: if a secret is empty.
        """
        if not all((secret, *others)):
            raise ConfigurationError("the secret is empty")
        self._secrets = secret, *others

    def new_nonce(self) -> bytes:
        """Return a nonce that counts as this node's until it is released."""
        nonce = secrets.token_bytes(NONCE_SIZE)
        self._nonces.add(nonce)
        return nonce

    def release_nonce(self, nonce: bytes) -> None:
        """Release a nonce."""
        self._nonces.discard(nonce)

    def is_own_nonce(self, nonce: bytes) -> bool:
        """Return whether a nonce is one of this node's."""
        return nonce in self._nonces

    def compute_proof(self, role: bytes, first: bytes, second: bytes, secret: bytes | None = None) -> bytes:
        """Return the proof of the end with a role.

        :param first: nonce of the end that proves first.
        :param secret: secret to prove; the first one by default.
        """
        key = self._secrets[0] if secret is None else secret
        return hmac.digest(key, self._context + role + b"\0" + first + second, "sha256")

    def start_timer(self, on_timeout: Callable[[], None]) -> IDelayedCall:
        """Call ``on_timeout`` when authentication has taken too long."""
        timer: IDelayedCall = self._reactor.callLater(TIMEOUT, on_timeout)
        return timer

    def record_failure(self, reason: str, source: str, problem: str = "") -> None:
        """Count and log a failed authentication."""
        if self._on_failure is not None:
            self._on_failure(reason)
        why = f"{REASONS[reason]}: {problem}" if problem else REASONS[reason]
        self._rate_limited_log.warn(reason, source, "hung up on {source}: {why}", why=why)
