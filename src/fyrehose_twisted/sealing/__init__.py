"""Sealed payloads: authenticated encryption between publishers and subscribers, which backbones cannot open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.sealing.key_file import read_key_ring as read_key_ring
    from fyrehose_twisted.sealing.key_ring import KeyRing as KeyRing
    from fyrehose_twisted.sealing.opener import PayloadOpener as PayloadOpener
    from fyrehose_twisted.sealing.sealer import PayloadSealer as PayloadSealer
    from fyrehose_twisted.sealing.signing import SigningKey as SigningKey
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "KeyRing": "key_ring",
            "PayloadOpener": "opener",
            "PayloadSealer": "sealer",
            "SigningKey": "signing",
            "read_key_ring": "key_file",
        },
    )
