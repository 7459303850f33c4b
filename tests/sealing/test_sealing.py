from __future__ import annotations

import os
import pickle
import sys
from copy import copy
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.sealing import STREAM, opener, ring, seal_key, seal_one, sealer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.keys import ALGORITHMS, SealKey
from fyrehose_twisted.sealing.outcome import OpenedPayload, Refusal
from fyrehose_twisted.sealing.payload import HEADER_SIZE, MAGIC, SEAL_OVERHEAD, decode_header, encode_header, is_sealed
from fyrehose_twisted.sealing.sealer import PayloadSealer
from fyrehose_twisted.sealing.signing import MAX_SIGNATURE_OVERHEAD, SigningKey

ENVELOPE = b"\xf7FY\x01publishercounter"[:20]

payloads = st.binary(max_size=80)
envelopes = st.sampled_from([b"", ENVELOPE])


def opened(data: bytes, payload: bytes, envelope_size: int = 0) -> bool:
    found = opener().open(data, envelope_size)
    return isinstance(found, OpenedPayload) and found.data == payload


class TestRoundTrip:
    @given(
        st.lists(payloads, min_size=1, max_size=5), envelopes, st.sampled_from(list(ALGORITHMS)), st.floats(0, 2**32)
    )
    def test_sealed_payloads_open(self, texts: list[bytes], envelope: bytes, algorithm: str, now: float) -> None:
        keys = KeyRing(STREAM, [seal_key(1, algorithm)])
        made = sealer(keys).seal(texts, [envelope] * len(texts), now)
        for number, (sealed, text) in enumerate(zip(made, texts, strict=True)):
            assert len(sealed) == len(text) + SEAL_OVERHEAD
            found = opener(keys).open(envelope + sealed, len(envelope))
            assert isinstance(found, OpenedPayload)
            assert (found.data, found.counter, found.sealed_at) == (text, number, int(now * 1_000_000))

    def test_a_sealed_payload_does_not_contain_the_plain_one(self) -> None:
        text = b"a payload that nobody on the way may read"
        assert text not in seal_one(sealer(), text)

    @given(payloads)
    def test_each_truncation_is_refused(self, payload: bytes) -> None:
        data = seal_one(sealer(), payload, ENVELOPE)
        for size in range(len(ENVELOPE), len(data)):
            assert opener().open(data[:size], len(ENVELOPE)) in (Refusal.PLAIN, Refusal.MALFORMED, Refusal.FORGED)

    @given(payloads, envelopes, st.data())
    def test_each_flipped_bit_is_refused(self, payload: bytes, envelope: bytes, draw: st.DataObject) -> None:
        data = bytearray(seal_one(sealer(), payload, envelope))
        place = draw.draw(st.integers(0, len(data) - 1))
        data[place] ^= 1 << draw.draw(st.integers(0, 7))
        assert isinstance(opener().open(bytes(data), len(envelope)), Refusal)

    @given(st.binary(max_size=200), st.integers(0, 20))
    def test_arbitrary_bytes_are_refused(self, data: bytes, size: int) -> None:
        assert isinstance(opener().open(data, size), Refusal)
        assert isinstance(opener().open(data[:size] + MAGIC + data, size), Refusal)

    @given(st.binary(min_size=HEADER_SIZE + 16, max_size=80))
    def test_headers_survive_encoding(self, data: bytes) -> None:
        text = MAGIC + data[3:]
        header = decode_header(text)
        assert header is not None
        assert encode_header(header) == text[:HEADER_SIZE]


class TestRefusals:
    def test_payloads_of_another_stream_are_refused(self) -> None:
        data = seal_one(sealer(ring(stream="fyrehose://other")), b"x")
        assert opener().open(data, 0) is Refusal.FORGED

    def test_payloads_under_another_envelope_are_refused(self) -> None:
        sealed = seal_one(sealer(), b"x", ENVELOPE)[len(ENVELOPE) :]
        assert opener().open(ENVELOPE[:-1] + b"?" + sealed, len(ENVELOPE)) is Refusal.FORGED
        assert opener().open(sealed, 0) is Refusal.FORGED

    def test_payloads_under_an_unknown_key_are_refused(self) -> None:
        assert opener().open(seal_one(sealer(ring(2)), b"x"), 0) is Refusal.UNKNOWN_KEY

    def test_payloads_of_a_later_version_are_refused(self) -> None:
        data = seal_one(sealer(), b"x")
        assert opener().open(data[:3] + b"\x07" + data[4:], 0) is Refusal.MALFORMED

    def test_plain_payloads_are_refused_unless_they_are_allowed(self) -> None:
        assert opener().open(ENVELOPE + b"x", len(ENVELOPE)) is Refusal.PLAIN
        allowing = opener(allow_plain=True)
        assert allowing.open(ENVELOPE + b"x", len(ENVELOPE)) == OpenedPayload(b"x")
        assert allowing.admit(OpenedPayload(b"x"), 1)
        assert allowing.admit(OpenedPayload(b"x"), 1)

    def test_forged_payloads_are_refused_even_if_plain_ones_are_allowed(self) -> None:
        data = seal_one(sealer(), b"x")
        assert opener(allow_plain=True).open(data[:-1] + bytes([data[-1] ^ 1]), 0) is Refusal.FORGED

    def test_each_refusal_has_a_description(self) -> None:
        assert all(reason.description for reason in Refusal)


class TestRotation:
    def test_the_first_key_seals_and_all_open(self) -> None:
        old, both, new = ring(1), ring(2, 1), ring(2)
        before, after = seal_one(sealer(old), b"before"), seal_one(sealer(both), b"after")
        assert [opener(both).open(data, 0).data for data in (before, after)] == [b"before", b"after"]  # type: ignore[union-attr]
        assert opener(new).open(before, 0) is Refusal.UNKNOWN_KEY

    def test_keys_are_replaced_in_use(self) -> None:
        made, subscriber = sealer(ring(1)), opener(ring(1))
        data = [seal_one(made, b"1")]
        subscriber.ring = ring(1, 2)
        made.ring = ring(2, 1)
        data.append(seal_one(made, b"2"))
        found = [subscriber.open(one, 0) for one in data]
        assert [one.data for one in found if isinstance(one, OpenedPayload)] == [b"1", b"2"]
        # The window goes on: the publisher id and the counter are those of before.
        assert [subscriber.admit(one, 1) for one in found if isinstance(one, OpenedPayload)] == [True, True]
        assert len({decode_header(one).publisher for one in data if decode_header(one)}) == 1  # type: ignore[union-attr]
        subscriber.ring = ring(2)
        assert subscriber.open(data[0], 0) is Refusal.UNKNOWN_KEY

    def test_differences_name_keys_without_secrets(self) -> None:
        first, second = seal_key(1), seal_key(2)
        assert ring(1).differences(ring(1)) == []
        told = ring(1).differences(ring(2, 1))
        assert told == [f"sealing key {first.id.hex()} -> {second.id.hex()}", f"key {second.id.hex()} added"]
        assert ring(2, 1).differences(ring(2)) == [f"key {first.id.hex()} removed"]


class TestNonces:
    def test_no_nonce_is_used_twice_under_a_publisher_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fyrehose_twisted.sealing.sealer.MAX_COUNTER", 3)
        made, rotated = sealer(), 0
        seen = set()
        for number in range(20):
            if number % 4 == 3:
                rotated = 3 - rotated
                made.ring = ring(*((2, 1) if rotated else (1, 2)))
            header = decode_header(seal_one(made, b""))
            assert header is not None
            seen.add((header.key_id, header.publisher, header.counter))
            assert header.counter < 3
        assert len(seen) == 20

    def test_a_restarted_publisher_has_another_id(self) -> None:
        headers = [decode_header(seal_one(sealer(seed=seed), b"")) for seed in (1, 2)]
        assert headers[0] is not None
        assert headers[1] is not None
        assert headers[0].publisher != headers[1].publisher

    # Libraries keep threads, which the child does not use.
    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_forked_publisher_has_another_id(self) -> None:
        made = sealer()
        before = decode_header(seal_one(made, b""))
        read, write = os.pipe()
        child = os.fork()
        if not child:  # pragma: no cover
            os.write(write, seal_one(made, b""))
            os._exit(0)
        os.waitpid(child, 0)
        of_child, of_parent = decode_header(os.read(read, 200)), decode_header(seal_one(made, b""))
        os.close(read)
        os.close(write)
        assert before is not None
        assert of_child is not None
        assert of_parent is not None
        assert of_child.publisher != of_parent.publisher == before.publisher
        assert (of_child.counter, of_parent.counter) == (0, 1)

    def test_a_sealer_cannot_be_copied(self) -> None:
        for duplicate in (copy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied"):
                duplicate(sealer())


class TestReplays:
    def test_a_payload_is_admitted_once(self) -> None:
        made, subscriber = sealer(), opener()
        for row in (0, 2, 1):
            found = subscriber.open(made.seal([b"0", b"1", b"2"], [b""] * 3, 1.0)[row], 0)
            assert isinstance(found, OpenedPayload)
            assert subscriber.admit(found, 1)
            assert not subscriber.admit(found, 1)

    def test_windows_survive_a_restart(self) -> None:
        made, subscriber, restarted = sealer(), opener(), opener()
        subscriber.track_admissions()
        found = [subscriber.open(seal_one(made, b"%d" % number), 0) for number in range(4)]
        messages = [one for one in found if isinstance(one, OpenedPayload)]
        assert all(subscriber.admit(one, number) for number, one in enumerate(messages[:3]))
        restarted.restore(subscriber.replay_state(2))
        assert [restarted.admit(one, number) for number, one in enumerate(messages)] == [False, False, True, True]
        assert not any(restarted.admit(one, number) for number, one in enumerate(messages))


class TestSignatures:
    def setup_method(self) -> None:
        self.anna, self.ben = (SigningKey(bytes([seed]) * 32) for seed in (1, 2))
        self.keys = KeyRing(STREAM, [seal_key()], {"anna": self.anna.public, "ben": self.ben.public})

    def sealer(self, key: SigningKey | None, seed: int = 1) -> PayloadSealer:
        return PayloadSealer(ring(), Random(seed), signing_key=key)

    @given(st.lists(payloads, min_size=1, max_size=150))
    def test_signed_payloads_open_in_any_order(self, texts: list[bytes]) -> None:
        self.setup_method()
        subscriber = opener(self.keys)
        made = self.sealer(self.anna).seal(texts, [ENVELOPE] * len(texts), 1.0)
        for sealed, text in reversed(list(zip(made, texts, strict=True))):
            assert len(sealed) <= len(text) + SEAL_OVERHEAD + MAX_SIGNATURE_OVERHEAD
            found = subscriber.open(ENVELOPE + sealed, len(ENVELOPE))
            assert isinstance(found, OpenedPayload)
            assert (found.data, found.signer) == (text, "anna")
            assert subscriber.admit(found, 1)

    def test_a_subscriber_without_publishers_opens_signed_payloads(self) -> None:
        assert opened(seal_one(self.sealer(self.anna), b"x"), b"x")

    def test_unsigned_payloads_are_refused(self) -> None:
        assert opener(self.keys).open(seal_one(self.sealer(None), b"x"), 0) is Refusal.UNSIGNED

    def test_unknown_signers_are_refused(self) -> None:
        data = seal_one(self.sealer(SigningKey(bytes([3]) * 32)), b"x")
        assert opener(self.keys).open(data, 0) is Refusal.UNKNOWN_SIGNER

    def test_a_holder_of_the_key_cannot_speak_for_a_publisher(self) -> None:
        """The forger takes a signature of Anna's apart, and seals another payload with it."""
        victim = self.sealer(self.anna)
        data = seal_one(victim, b"pay 1")
        header = decode_header(data)
        assert header is not None
        cipher = seal_key().cipher(header.publisher)
        bound = data[:HEADER_SIZE] + ring().context
        nonce = bytes(4) + header.counter.to_bytes(8, "big")
        block = cipher.decrypt(nonce, data[HEADER_SIZE:], bound)[:-5]
        forged = data[:HEADER_SIZE] + cipher.encrypt(nonce, block + b"pay 9", bound)
        assert opener(self.keys).open(data, 0).data == b"pay 1"  # type: ignore[union-attr]
        assert opener(self.keys).open(forged, 0) is Refusal.BAD_SIGNATURE
        # The same payload under another counter is not what Anna signed, either.
        moved = encode_header(header._replace(counter=header.counter + 1))
        again = moved + cipher.encrypt(nonce[:-1] + b"\1", block + b"pay 1", moved + ring().context)
        assert opener(self.keys).open(again, 0) is Refusal.BAD_SIGNATURE

    def test_a_publisher_cannot_use_up_the_counters_of_another(self) -> None:
        subscriber = opener(self.keys)
        ours = subscriber.open(seal_one(self.sealer(self.anna, seed=5), b"x"), 0)
        theirs = subscriber.open(seal_one(self.sealer(self.ben, seed=5), b"x"), 0)
        assert isinstance(ours, OpenedPayload)
        assert isinstance(theirs, OpenedPayload)
        assert ours.publisher == theirs.publisher
        assert subscriber.admit(theirs, 1)
        assert subscriber.admit(ours, 1)

    def test_what_was_received_before_signatures_were_required_is_not_admitted_again(self) -> None:
        subscriber = opener(ring())
        data = seal_one(self.sealer(self.anna), b"x")
        before = subscriber.open(data, 0)
        assert isinstance(before, OpenedPayload)
        assert subscriber.admit(before, 1)
        subscriber.ring = self.keys
        after = subscriber.open(data, 0)
        assert isinstance(after, OpenedPayload)
        assert after.signer == "anna"
        assert not subscriber.admit(after, 1)

    @given(st.data())
    def test_a_malformed_signature_is_refused(self, draw: st.DataObject) -> None:
        self.setup_method()
        made = self.sealer(self.anna)
        header = decode_header(seal_one(made, b"x"))
        assert header is not None
        text = draw.draw(st.binary(max_size=300))
        head = encode_header(header)
        cipher = seal_key().cipher(header.publisher)
        data = head + cipher.encrypt(bytes(12), text, head + ring().context)
        assert isinstance(opener(self.keys).open(data, 0), Refusal)


def test_a_payload_that_only_looks_sealed_is_recognised_by_its_magic() -> None:
    assert is_sealed(b"ab" + MAGIC, 2)
    assert not is_sealed(MAGIC, 1)


def test_secrets_do_not_show() -> None:
    key = SealKey("aes-256-gcm", b"s" * 32)
    shown = f"{key!r} {KeyRing(STREAM, [key])!r} {sealer()!r} {opener()!r} {SigningKey(b's' * 32)!r}"
    assert b"s".hex() * 4 not in shown
    assert "ssss" not in shown


@pytest.mark.parametrize("hidden", ["cryptography.hazmat.primitives.ciphers", "cryptography.exceptions"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(ConfigurationError, match=r"pip install 'fyrehose_twisted\[keys\]'"):
        opener()
