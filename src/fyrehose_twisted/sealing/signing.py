"""Signatures of publishers over batches of sealed messages (Ed25519, RFC 8032).

All holders of a stream's key can seal. A signature says which of them did. Messages that are sealed together are the
leaves of a hash tree, whose root is signed once. Each message carries, before the payload and encrypted with it:

======  =====  ==============================================================
offset  bytes  content
======  =====  ==============================================================
0       8      signer id, derived from the public key
8       1      number of the message in the batch, from 0
9       1      depth of the tree, 0 to 6; 0 is a batch of one message
10      32d    hashes of the siblings on the way to the root
...     64     signature of the root
======  =====  ==============================================================

A leaf is SHA-256 of 0x00, the associated data and the payload; an inner hash is SHA-256 of 0x01 and both children.
Missing leaves are 32 zero bytes.
"""

from __future__ import annotations

import os
import struct
from hashlib import sha256
from typing import Any, NamedTuple

from fyrehose_twisted.errors import ConfigurationError

MAX_BATCH = 64
"""Messages under one signature."""
PUBLIC_KEY_SIZE = 32
SEED_SIZE = 32
SIGNATURE_SIZE = 64
HASH_SIZE = 32
MAX_DEPTH = MAX_BATCH.bit_length() - 1
_PREFIX = struct.Struct(">8sBB")
MAX_SIGNATURE_OVERHEAD = _PREFIX.size + MAX_DEPTH * HASH_SIZE + SIGNATURE_SIZE
"""Bytes that a signature adds to a message at most: 266."""

_SIGNER_LABEL = b"fyrehose seal signer\0"
_BATCH_LABEL = b"fyrehose seal batch\0"
_LEAF, _INNER = b"\0", b"\1"
_NO_LEAF = bytes(HASH_SIZE)


class SignedBlock(NamedTuple):
    """Signature of a message."""

    signer: bytes
    row: int
    path: tuple[bytes, ...]
    signature: bytes
    size: int
    """Bytes before the payload."""


class SigningKey:
    """Private key of a publisher.

    :param seed: 32 secret bytes.
    :ivar public: public key, 32 bytes.
    :raises ConfigurationError: if the seed has another size, or the package for signatures is not installed.
    """

    def __init__(self, seed: bytes) -> None:
        ed25519 = _load_ed25519()
        if len(seed) != SEED_SIZE:
            raise ConfigurationError(f"a signing key has {SEED_SIZE} bytes, not {len(seed)}")
        self._seed = seed
        self._private: Any = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
        self.public: bytes = self._private.public_key().public_bytes_raw()
        self.id = signer_id(self.public)

    def __reduce__(self) -> tuple[type[SigningKey], tuple[bytes]]:
        return SigningKey, (self._seed,)

    def __repr__(self) -> str:
        return f"<SigningKey {self.public.hex()}>"

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a new random key."""
        return cls(os.urandom(SEED_SIZE))

    def seed_hex(self) -> str:
        """Return the secret for a key file."""
        return self._seed.hex()

    def sign_batch(self, leaves: list[bytes]) -> list[bytes]:
        """Return what precedes the payload of each message of a batch.

        :param leaves: 1 to :data:`MAX_BATCH` leaf hashes.
        """
        levels = _tree(leaves)
        depth = len(levels) - 1
        signature: bytes = self._private.sign(_BATCH_LABEL + levels[-1][0])
        blocks = []
        for index in range(len(leaves)):
            path = [levels[level][(index >> level) ^ 1] for level in range(depth)]
            blocks.append(b"".join([_PREFIX.pack(self.id, index, depth), *path, signature]))
        return blocks


def decode_block(text: bytes) -> SignedBlock | None:
    """Return the signature that precedes a payload; ``None`` if it is malformed."""
    if len(text) < _PREFIX.size + SIGNATURE_SIZE:
        return None
    signer, index, depth = _PREFIX.unpack_from(text)
    size = _PREFIX.size + depth * HASH_SIZE + SIGNATURE_SIZE
    if depth > MAX_DEPTH or index >> depth or len(text) < size:
        return None
    path = tuple(text[start : start + HASH_SIZE] for start in range(_PREFIX.size, size - SIGNATURE_SIZE, HASH_SIZE))
    return SignedBlock(signer, index, path, text[size - SIGNATURE_SIZE : size], size)


def leaf_hash(associated_data: bytes, payload: bytes) -> bytes:
    """Return the leaf of a message."""
    return sha256(_LEAF + associated_data + payload).digest()


def root_hash(leaf: bytes, block: SignedBlock) -> bytes:
    """Return the root of the batch that a message claims to be in."""
    found = leaf
    for level, sibling in enumerate(block.path):
        pair = sibling + found if block.row >> level & 1 else found + sibling
        found = sha256(_INNER + pair).digest()
    return found


def verify_root(public: bytes, root: bytes, signature: bytes) -> bool:
    """Return whether a signature of a root is valid."""
    ed25519 = _load_ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, _BATCH_LABEL + root)
    except (InvalidSignature, ValueError):
        return False
    return True


def signer_id(public: bytes) -> bytes:
    """Return the id of a public key in signatures."""
    return sha256(_SIGNER_LABEL + public).digest()[:8]


def _tree(leaves: list[bytes]) -> list[list[bytes]]:
    """Return the levels of the hash tree, the leaves first."""
    size = 1 << (len(leaves) - 1).bit_length()
    levels = [leaves + [_NO_LEAF] * (size - len(leaves))]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([sha256(_INNER + below[row] + below[row + 1]).digest() for row in range(0, len(below), 2)])
    return levels


def _load_ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigurationError("signatures require a package: pip install 'fyrehose_twisted[keys]'") from None
    return ed25519
