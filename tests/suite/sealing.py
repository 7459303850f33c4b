"""Keys, sealers and openers of tests."""

from __future__ import annotations

from random import Random

from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.keys import DEFAULT_ALGORITHM, SealKey
from fyrehose_twisted.sealing.opener import PayloadOpener
from fyrehose_twisted.sealing.sealer import PayloadSealer

STREAM = "fyrehose://prices"


def seal_key(number: int = 1, algorithm: str = DEFAULT_ALGORITHM) -> SealKey:
    """Return one of several keys."""
    return SealKey(algorithm, bytes([number]) * 32)


def ring(*numbers: int, stream: str = STREAM) -> KeyRing:
    """Return a ring of the keys with these numbers; of the first one by default."""
    return KeyRing(stream, map(seal_key, numbers or (1,)))


def sealer(keys: KeyRing | None = None, seed: int = 1) -> PayloadSealer:
    """Return a sealer whose publisher ids depend on ``seed``."""
    return PayloadSealer(ring() if keys is None else keys, Random(seed))


def opener(keys: KeyRing | None = None, *, allow_plain: bool = False) -> PayloadOpener:
    """Return an opener."""
    return PayloadOpener(ring() if keys is None else keys, allow_plain=allow_plain)


def seal_one(made: PayloadSealer, payload: bytes, envelope: bytes = b"", now: float = 1.0) -> bytes:
    """Return the DATA of a sealed message."""
    return envelope + made.seal([payload], [envelope], now)[0]
