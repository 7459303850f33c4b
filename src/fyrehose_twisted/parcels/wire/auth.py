"""What shows both ends of a connection that the other one knows the secret of the cluster, without telling it.

Each proof is made for one connection: it depends on the nonces, names and lives of both ends, and on which end made it,
so that none can be used again elsewhere or sent back to whoever made it. What comes after the proofs is not protected:
where others can reach into a connection, TLS is needed.
"""

from __future__ import annotations

import hmac

import cbor2

from fyrehose_twisted.parcels.wire.messages import Hello, Welcome

_WELCOME = b"parcels-welcome\0"
_DIALLER = b"parcels-proof\0"


def welcome_proof(secret: bytes | None, hello: Hello, welcome: Welcome) -> bytes:
    """Return what the one who was dialled puts into its :class:`Welcome`, 32 bytes; nothing without a secret.

    :param welcome: whatever it has as its proof does not matter.
    """
    return _proof(secret, _WELCOME, hello, welcome)


def dialler_proof(secret: bytes | None, hello: Hello, welcome: Welcome) -> bytes:
    """Return what the one who dialled answers with, 32 bytes; nothing without a secret."""
    return _proof(secret, _DIALLER, hello, welcome)


def same_proof(expected: bytes, given: bytes) -> bool:
    """Say whether ``given`` is what was expected, in a time that does not tell how much of it is right."""
    return hmac.compare_digest(expected, given)


def _proof(secret: bytes | None, label: bytes, hello: Hello, welcome: Welcome) -> bytes:
    if secret is None:
        return b""
    said = [*hello, *welcome._replace(proof=b"")]
    return hmac.digest(secret, label + cbor2.dumps(said), "sha256")
