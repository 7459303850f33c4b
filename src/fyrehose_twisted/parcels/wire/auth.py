"""Mutual proofs that both ends of a connection know the secret of the cluster, without revealing it.

A proof covers the nonces, names and incarnations of both ends, and the direction. So it cannot be replayed on another
connection or reflected to its sender. Messages after the proofs are not protected. On untrusted networks, use TLS.
"""

from __future__ import annotations

import hmac

import cbor2

from fyrehose_twisted.parcels.wire.messages import Hello, Welcome

_WELCOME = b"parcels-welcome\0"
_DIALLER = b"parcels-proof\0"


def welcome_proof(secret: bytes | None, hello: Hello, welcome: Welcome) -> bytes:
    """Return the proof of the dialled node for its :class:`Welcome`: 32 bytes, or none without a secret.

    :param welcome: message to prove; its ``proof`` field is ignored.
    """
    return _proof(secret, _WELCOME, hello, welcome)


def dialler_proof(secret: bytes | None, hello: Hello, welcome: Welcome) -> bytes:
    """Return the proof of the dialling peer: 32 bytes, or none without a secret."""
    return _proof(secret, _DIALLER, hello, welcome)


def same_proof(expected: bytes, given: bytes) -> bool:
    """Compare two proofs in constant time."""
    return hmac.compare_digest(expected, given)


def _proof(secret: bytes | None, label: bytes, hello: Hello, welcome: Welcome) -> bytes:
    if secret is None:
        return b""
    said = [*hello, *welcome._replace(proof=b"")]
    return hmac.digest(secret, label + cbor2.dumps(said), "sha256")
