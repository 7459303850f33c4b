"""Sealed payloads from hosts without the key, and signatures from holders of the key."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from fuzz.seeds import vectors
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.keys import SealKey
from fyrehose_twisted.sealing.opener import PayloadOpener
from fyrehose_twisted.sealing.outcome import OpenedPayload, Refusal
from fyrehose_twisted.sealing.payload import SIGNED, SealHeader, encode_header, nonce
from fyrehose_twisted.sealing.sealer import PayloadSealer
from fyrehose_twisted.sealing.signing import SigningKey

STREAM = "fyrehose://prices"
SIGNING = SigningKey(bytes(range(64, 96)))
RING = KeyRing(STREAM, [SealKey("chacha20-poly1305", bytes(range(32)))])
STRICT = KeyRing(STREAM, RING.keys, {"anna": SIGNING.public})
_PUBLISHER = bytes(16)


def seeds() -> Iterable[bytes]:
    """Return DATA with a prefix byte for the size of its envelope, and texts of holders of the key."""
    found = []
    for vector in vectors("seal"):
        size = vector.get("envelope_size", len(vector.get("envelope", "")) // 2)
        found.append(bytes([size]) + bytes.fromhex(vector["data"]))
    batch = PayloadSealer(RING, Random(1), signing_key=SIGNING).seal([b"1", b"2", b"3"], [b""] * 3, 1.0)
    blocks = [PayloadOpener(RING).open(sealed, 0) for sealed in batch]
    assert all(isinstance(block, OpenedPayload) for block in blocks)
    return found + [b"\xff" + block for block in SIGNING.sign_batch([bytes(32), bytes(32)])]


def one(data: bytes) -> None:
    """Open DATA, or what a holder of the key made of a text."""
    if not data:
        return
    size, text = data[0], data[1:]
    forged = size == 0xFF
    if forged:
        key = RING.sealing_key
        head = encode_header(SealHeader(SIGNED, key.id, _PUBLISHER, 0, 0))
        text, size = head + key.cipher(_PUBLISHER).encrypt(nonce(0), text, head + RING.context), 0
    size = min(size, len(text))
    strict = PayloadOpener(STRICT).open(text, size)
    assert isinstance(strict, Refusal) or (strict.signer == "anna" and not forged), "a signature was forged"
    opener = PayloadOpener(RING)
    opened = opener.open(text, size)
    if isinstance(opened, OpenedPayload):
        assert len(opened.data) <= len(text)
        assert opener.admit(opened, 1)
        assert not opener.admit(opened, 2)
    else:
        assert opened.description
