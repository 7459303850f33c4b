"""Sealing of payloads by one publisher."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NoReturn
from weakref import WeakSet

from zope.interface import implementer

from fyrehose_twisted.interfaces import IPayloadSealer
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.keys import check_available
from fyrehose_twisted.sealing.payload import (
    PUBLISHER_ID_SIZE,
    SEAL_OVERHEAD,
    SEALED,
    SIGNED,
    SealHeader,
    encode_header,
    nonce,
)
from fyrehose_twisted.sealing.signing import MAX_BATCH, MAX_SIGNATURE_OVERHEAD, SigningKey, leaf_hash

MAX_COUNTER = 2**24
"""Messages under one publisher id, after which the sealer draws a new one. It keeps AES-GCM far from its limits."""


@implementer(IPayloadSealer)
class PayloadSealer:
    """Sealer of one publisher.

    It draws a publisher id for its first message, and a new one after a fork, so that no nonce is used twice. It cannot
    be copied for the same reason.

    :param rng: source of publisher ids, unpredictable and never repeated: :class:`random.SystemRandom`.
    :param signing_key: key that signs the messages; ``None`` for no signatures.
    :ivar ring: keys. May be replaced at any time.
    :ivar overhead: bytes that sealing adds to a payload at most.
    :raises ConfigurationError: if the package for ciphers is not installed.
    """

    def __init__(self, ring: KeyRing, rng: Random, *, signing_key: SigningKey | None = None) -> None:
        check_available()
        self.ring = ring
        self.overhead = SEAL_OVERHEAD + (0 if signing_key is None else MAX_SIGNATURE_OVERHEAD)
        self._rng = rng
        self._signing_key = signing_key
        self._publisher = b""
        self._counter = 0
        self._cipher: Any = None
        self._cipher_key: object = None
        _sealers.add(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a sealer cannot be copied, for two would use the same nonces; make one from the key ring")

    def __repr__(self) -> str:
        return f"<PayloadSealer of {self.ring.stream}>"

    def forget_publisher(self) -> None:
        """Draw a new publisher id for the next message."""
        self._publisher = b""

    def seal(self, payloads: Iterable[bytes], envelopes: Sequence[bytes], now: float) -> list[bytes]:
        """See :meth:`~fyrehose_twisted.interfaces.IPayloadSealer.seal`."""
        sealed_at, kind = int(now * 1_000_000), SEALED if self._signing_key is None else SIGNED
        texts = list(map(bytes, payloads))
        key = self.ring.sealing_key
        if not self._publisher or self._counter + len(texts) > MAX_COUNTER:
            self._publisher, self._counter, self._cipher_key = self._rng.randbytes(PUBLISHER_ID_SIZE), 0, None
        if self._cipher_key is not key:
            self._cipher, self._cipher_key = key.cipher(self._publisher), key
        # Taken before anything can fail, so that no error makes a counter come twice.
        counters = range(self._counter, self._counter + len(texts))
        self._counter = counters.stop
        publisher, context, encrypt = self._publisher, self.ring.context, self._cipher.encrypt
        heads = [encode_header(SealHeader(kind, key.id, publisher, counter, sealed_at)) for counter in counters]
        bound = [head + context + envelope for head, envelope in zip(heads, envelopes, strict=True)]
        if self._signing_key is not None:
            texts = _signed(self._signing_key, texts, bound)
        return [
            head + encrypt(nonce(counter), text, associated)
            for head, counter, text, associated in zip(heads, counters, texts, bound, strict=True)
        ]


def _signed(key: SigningKey, texts: list[bytes], bound: list[bytes]) -> list[bytes]:
    found: list[bytes] = []
    for start in range(0, len(texts), MAX_BATCH):
        rows = slice(start, start + MAX_BATCH)
        leaves = list(map(leaf_hash, bound[rows], texts[rows]))
        found += [block + text for block, text in zip(key.sign_batch(leaves), texts[rows], strict=True)]
    return found


_sealers: WeakSet[PayloadSealer] = WeakSet()


def _forget_publishers() -> None:
    for sealer in list(_sealers):
        sealer.forget_publisher()


os.register_at_fork(after_in_child=_forget_publishers)
