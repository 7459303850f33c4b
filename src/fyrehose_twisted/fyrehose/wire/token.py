"""KEEPALIVE tokens made from a shared secret."""

from __future__ import annotations

import hmac

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import TOKEN_SIZE, Keepalive

TOKEN_STEP_SECONDS = 30
"""Seconds in one time step of a token. Tokens of the adjacent steps are accepted too."""


def make_token(secret: bytes, address: Address, flags: int, now: float, *, step: int = 0) -> bytes:
    """Return the TOKEN of a KEEPALIVE: 16 bytes of HMAC-SHA-256 over ADDR, PORT, FLAGS and the time step.

    :param step: offset from the time step of ``now``, in steps of 30 s.
    """
    body = encode(Keepalive(address, flags))[1:-TOKEN_SIZE]
    steps = int(now // TOKEN_STEP_SECONDS) + step
    return hmac.digest(secret, body + steps.to_bytes(8, "big", signed=True), "sha256")[:TOKEN_SIZE]


def token_is_valid(secret: bytes, keepalive: Keepalive, now: float) -> bool:
    """Return whether the token of ``keepalive`` was made with ``secret`` in the current or an adjacent time step."""
    # Always compute all three, so that timing reveals nothing.
    matches = [
        hmac.compare_digest(make_token(secret, keepalive.address, keepalive.flags, now, step=step), keepalive.token)
        for step in (0, -1, 1)
    ]
    return any(matches)
