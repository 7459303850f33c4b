"""Proofs of the shared secret."""

from __future__ import annotations

from typing import Any

import pytest

from fyrehose_twisted.parcels.wire.auth import dialler_proof, same_proof, welcome_proof
from fyrehose_twisted.parcels.wire.messages import Hello, Welcome

SECRET = b"a secret that is long enough"
HELLO = Hello("default", "a", 1, 2, b"n" * 16)
WELCOME = Welcome("b", 3, 2, b"m" * 16, b"")

PROOFS = pytest.mark.parametrize("prove", [welcome_proof, dialler_proof])


@PROOFS
def test_both_ends_compute_the_same_proof(prove: Any) -> None:
    proof = prove(SECRET, HELLO, WELCOME)
    assert len(proof) == 32
    assert same_proof(prove(SECRET, HELLO, WELCOME._replace(proof=proof)), proof)


@PROOFS
def test_proof_without_a_secret_is_empty(prove: Any) -> None:
    assert prove(None, HELLO, WELCOME) == b""


def test_proofs_of_dialler_and_acceptor_differ() -> None:
    assert welcome_proof(SECRET, HELLO, WELCOME) != dialler_proof(SECRET, HELLO, WELCOME)


@PROOFS
@pytest.mark.parametrize(
    "hello",
    [
        HELLO._replace(cluster="other"),
        HELLO._replace(name="c"),
        HELLO._replace(incarnation=9),
        HELLO._replace(cluster_id=9),
        HELLO._replace(nonce=b"x" * 16),
    ],
)
def test_proof_depends_on_each_field_of_the_hello(prove: Any, hello: Hello) -> None:
    assert prove(SECRET, hello, WELCOME) != prove(SECRET, HELLO, WELCOME)


@PROOFS
@pytest.mark.parametrize(
    "welcome",
    [
        WELCOME._replace(name="c"),
        WELCOME._replace(incarnation=9),
        WELCOME._replace(cluster_id=9),
        WELCOME._replace(nonce=b"x" * 16),
    ],
)
def test_proof_depends_on_each_field_of_the_welcome(prove: Any, welcome: Welcome) -> None:
    assert prove(SECRET, HELLO, welcome) != prove(SECRET, HELLO, WELCOME)


@PROOFS
def test_proof_depends_on_the_secret(prove: Any) -> None:
    assert not same_proof(prove(SECRET, HELLO, WELCOME), prove(SECRET + b"!", HELLO, WELCOME))
    assert not same_proof(prove(SECRET, HELLO, WELCOME), b"")


@PROOFS
def test_proof_separates_adjacent_fields(prove: Any) -> None:
    one = HELLO._replace(cluster="ab", name="c")
    other = HELLO._replace(cluster="a", name="bc")
    assert prove(SECRET, one, WELCOME) != prove(SECRET, other, WELCOME)
