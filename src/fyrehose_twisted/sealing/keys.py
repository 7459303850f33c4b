"""Symmetric keys of sealed payloads."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sealing.payload import KEY_ID_SIZE

KEY_SIZE = 32
ALGORITHMS = {"chacha20-poly1305": 1, "aes-256-gcm": 2}
"""Numbers of the algorithms, by name. The number is part of the id of a key, so a key has one algorithm."""
DEFAULT_ALGORITHM = "chacha20-poly1305"

_KEY_LABEL = b"fyrehose seal key\0"
_PUBLISHER_LABEL = b"fyrehose seal publisher\0"


class SealKey:
    """Key of a stream. Each publisher id has a key of its own that is derived from it.

    :param algorithm: one of :data:`ALGORITHMS`.
    :param secret: 32 secret bytes.
    :ivar id: id of the key in sealed payloads, derived from the key.
    :raises ConfigurationError: if the algorithm is unknown, or the secret has another size.
    """

    __slots__ = ("_secret", "algorithm", "id")

    def __init__(self, algorithm: str, secret: bytes) -> None:
        if algorithm not in ALGORITHMS:
            raise ConfigurationError(f"unknown algorithm {algorithm[:40]!r}; choose {' or '.join(ALGORITHMS)}")
        if len(secret) != KEY_SIZE:
            raise ConfigurationError(f"a key has {KEY_SIZE} bytes, not {len(secret)}")
        self.algorithm = algorithm
        self._secret = secret
        self.id = sha256(_KEY_LABEL + bytes([ALGORITHMS[algorithm]]) + secret).digest()[:KEY_ID_SIZE]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SealKey):
            return NotImplemented
        return self.algorithm == other.algorithm and hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<SealKey {self.id.hex()} {self.algorithm}>"

    def secret_hex(self) -> str:
        """Return the secret for a key file."""
        return self._secret.hex()

    def publisher_key(self, publisher: bytes) -> bytes:
        """Return the secret key of a publisher id."""
        return hmac.digest(self._secret, _PUBLISHER_LABEL + publisher, "sha256")

    def cipher(self, publisher: bytes) -> Any:
        """Return the cipher of a publisher id, which has ``encrypt`` and ``decrypt``.

        :raises ConfigurationError: if the package for ciphers is not installed, or lacks the algorithm.
        """
        ciphers = _load_ciphers()
        derived = self.publisher_key(publisher)
        if self.algorithm == "aes-256-gcm":
            return ciphers.AESGCM(derived)
        try:
            return ciphers.ChaCha20Poly1305(derived)
        except Exception as error:  # UnsupportedAlgorithm, as with OpenSSL in FIPS mode.
            raise ConfigurationError(f"{self.algorithm} is not available here: {error}; use aes-256-gcm") from error


def _load_ciphers() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import aead
    except ImportError:
        raise ConfigurationError("sealed payloads require a package: pip install 'fyrehose_twisted[keys]'") from None
    return aead


def check_available() -> None:
    """Check that payloads can be sealed and opened here.

    :raises ConfigurationError: if the package for ciphers is not installed.
    """
    _load_ciphers()
