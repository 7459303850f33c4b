"""Outcome of opening a sealed payload."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Refusal(StrEnum):
    """Reason why a payload is not delivered. The values are labels of counters."""

    PLAIN = "seal_missing"
    """It is not sealed."""
    MALFORMED = "seal_malformed"
    """It is too short, of a later version, or its signature is malformed."""
    UNKNOWN_KEY = "seal_unknown_key"
    """No key of the ring has its key id."""
    FORGED = "seal_forged"
    """It was not sealed with this key, or for another stream or envelope, or was changed."""
    UNSIGNED = "seal_unsigned"
    """It is not signed, and only signed messages are trusted."""
    UNKNOWN_SIGNER = "seal_unknown_signer"
    """It is signed by a publisher that is not trusted."""
    BAD_SIGNATURE = "seal_bad_signature"
    """A holder of the key made it in the name of a publisher."""
    REPEATED = "seal_repeated"
    """It was delivered before, or may have been."""

    @property
    def description(self) -> str:
        """What is wrong with the payload, for log lines."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    Refusal.PLAIN: "it is not sealed",
    Refusal.MALFORMED: "its seal is malformed, or of a later version",
    Refusal.UNKNOWN_KEY: "no key in the key file has its key id",
    Refusal.FORGED: "it is forged, or of another stream",
    Refusal.UNSIGNED: "it is not signed",
    Refusal.UNKNOWN_SIGNER: "its signer is not among the trusted publishers",
    Refusal.BAD_SIGNATURE: "a holder of the key forged its signature",
    Refusal.REPEATED: "it was replayed",
}


class OpenedPayload(NamedTuple):
    """Authentic payload."""

    data: bytes
    publisher: bytes = b""
    """Publisher id; empty if the payload was not sealed, and that is allowed."""
    counter: int = 0
    sealed_at: int = 0
    signer: str = ""
    """Name of the trusted publisher that signed it; empty if no signature is required."""
