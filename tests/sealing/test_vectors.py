from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from suite.sealing import opener

from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.keys import SealKey
from fyrehose_twisted.sealing.outcome import OpenedPayload
from fyrehose_twisted.sealing.payload import HEADER_SIZE, nonce
from fyrehose_twisted.sealing.sealer import PayloadSealer
from fyrehose_twisted.sealing.signing import SigningKey

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "seal.json").read_text())
SEALED = [vector for vector in VECTORS if vector["kind"] == "sealed"]
REFUSED = [vector for vector in VECTORS if vector["kind"] == "refused"]
SEED = bytes(range(64, 96))
"""Private key of the signed vectors."""


class Chosen(Random):
    """Source of one publisher id."""

    def __init__(self, publisher: bytes) -> None:
        super().__init__(0)
        self._publisher = publisher

    def randbytes(self, n: int) -> bytes:
        assert n == len(self._publisher)
        return self._publisher


def ring_of(vector: dict[str, Any]) -> KeyRing:
    key = SealKey(vector["algorithm"], bytes.fromhex(vector["key"]))
    publishers = {"anna": bytes.fromhex(vector["public_key"])} if "public_key" in vector else {}
    return KeyRing(vector["stream"], [key], publishers)


def name_of(vector: dict[str, Any]) -> str:
    return str(vector["name"])


@pytest.mark.parametrize("vector", SEALED, ids=name_of)
def test_vectors_open(vector: dict[str, Any]) -> None:
    data, envelope = bytes.fromhex(vector["data"]), bytes.fromhex(vector["envelope"])
    keys, publisher = ring_of(vector), bytes.fromhex(vector["publisher_id"])
    [key] = keys.keys
    assert key.id.hex() == vector["key_id"]
    assert key.publisher_key(publisher).hex() == vector["publisher_key"]
    assert nonce(vector["counter"]).hex() == vector["nonce"]
    sealed = data[len(envelope) :]
    assert (sealed[:HEADER_SIZE] + keys.context + envelope).hex() == vector["associated_data"]
    assert opener(keys).open(data, len(envelope)) == OpenedPayload(
        bytes.fromhex(vector["payload"]),
        publisher,
        vector["counter"],
        vector["sealed_at"],
        vector.get("publisher", ""),
    )


@pytest.mark.parametrize("vector", [vector for vector in SEALED if not vector["counter"]], ids=name_of)
def test_first_messages_are_sealed_as_in_the_vectors(vector: dict[str, Any]) -> None:
    payload, envelope = bytes.fromhex(vector["payload"]), bytes.fromhex(vector["envelope"])
    key = SigningKey(SEED) if "public_key" in vector else None
    sealer = PayloadSealer(ring_of(vector), Chosen(bytes.fromhex(vector["publisher_id"])), signing_key=key)
    [sealed] = sealer.seal([payload], [envelope], vector["sealed_at"] / 1_000_000)
    assert (envelope + sealed).hex() == vector["data"]


@pytest.mark.parametrize("vector", REFUSED, ids=name_of)
def test_vectors_are_refused(vector: dict[str, Any]) -> None:
    assert opener(ring_of(vector)).open(bytes.fromhex(vector["data"]), vector["envelope_size"]) == vector["reason"]


def test_the_vectors_have_all_kinds() -> None:
    assert len(SEALED) >= 7
    assert {vector["reason"] for vector in REFUSED} == {
        "seal_missing",
        "seal_malformed",
        "seal_unknown_key",
        "seal_forged",
        "seal_unsigned",
    }
