from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError, MessageTooLarge
from fyrehose_twisted.freenet.wire import signing
from fyrehose_twisted.freenet.wire.messages import MAX_DATA, MAX_PACKET
from fyrehose_twisted.freenet.wire.signing import (
    KEY_PREFIX,
    MAX_SIGNED_CONTENT,
    PUBLIC_KEY_SIZE,
    SIGNATURE_OVERHEAD,
    SigningKey,
    can_verify,
    is_signed,
    named_key,
    parse_key,
    stream_key,
    strip_signature,
    verify,
)

SEED = bytes(range(32))
OTHER = bytes(range(1, 33))
PLAIN = bytes(20)

numbers = st.integers(0, MAX_PACKET)
bodies = st.binary(max_size=60) | st.integers(0, MAX_SIGNED_CONTENT).map(bytes)


class TestPackets:
    def test_the_encoding_of_signed_packets_is_unchanged(self) -> None:
        key = SigningKey(SEED)
        assert key.key.hex() == "ed25519ff92a26d7b039a0b423aed6ea1d87b7bf"
        assert key.sign(7, b"hello").hex() == (
            "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
            "fef526a4a8d9e8b26bf7a287cfc31598e9aeb29a3f0e51c6286ec12f17ea7290"
            "0bbea278d7ca4357e551edc923020739afefcd13a1195a6488fa5bea4bc2e206"
            "68656c6c6f"
        )

    @given(st.binary(min_size=32, max_size=32), numbers, bodies)
    def test_a_signed_packet_is_verified_and_stripped(self, seed: bytes, number: int, content: bytes) -> None:
        key = SigningKey(seed)
        data = key.sign(number, content)
        assert is_signed(key.key)
        assert verify(key.key, number, data)
        assert strip_signature(key.key, data) == content
        assert len(data) == len(content) + SIGNATURE_OVERHEAD <= MAX_DATA

    @given(bodies, st.data())
    def test_a_flipped_bit_invalidates_the_signature(self, content: bytes, draw: st.DataObject) -> None:
        key = SigningKey(SEED)
        data = bytearray(key.sign(7, content))
        data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
        assert not verify(key.key, 7, bytes(data))

    @given(st.binary(max_size=200))
    def test_arbitrary_bytes_are_not_verified_and_raise_nothing(self, data: bytes) -> None:
        key = SigningKey(SEED)
        assert not verify(key.key, 7, data)
        assert not verify(key.key, 7, key.sign(7, b"")[:PUBLIC_KEY_SIZE] + data)

    def test_a_signature_is_for_one_number_of_one_stream(self) -> None:
        key, other = SigningKey(SEED), SigningKey(OTHER)
        data = key.sign(7, b"hello")
        assert verify(key.key, 7, data)
        assert not verify(key.key, 8, data)
        assert not verify(other.key, 7, data)
        # Nor does it help to name another public key than the one that the key of the stream was made from.
        assert not verify(key.key, 7, other.sign(7, b"hello"))

    def test_a_signature_of_another_key_is_invalid(self) -> None:
        key, forger = SigningKey(SEED), SigningKey(OTHER)
        forger.key = key.key
        forged = forger.sign(7, b"hello")
        assert verify(key.key, 7, key.sign(7, b"hello"))
        assert not verify(key.key, 7, forged)

    @pytest.mark.parametrize("size", [0, 1, PUBLIC_KEY_SIZE, SIGNATURE_OVERHEAD - 1])
    def test_data_shorter_than_a_signature_is_invalid(self, size: int) -> None:
        key = SigningKey(SEED)
        assert not verify(key.key, 7, key.sign(7, b"")[:size])

    def test_invalid_public_keys_do_not_verify(self) -> None:
        for public in (b"\xff" * 32, bytes(32), b"\x02" + bytes(31)):
            assert not verify(stream_key(public), 7, public + bytes(64) + b"hello")

    def test_the_content_of_a_signed_packet_is_limited(self) -> None:
        key = SigningKey(SEED)
        assert MAX_SIGNED_CONTENT == MAX_DATA - 96
        assert len(key.sign(0, bytes(MAX_SIGNED_CONTENT))) == MAX_DATA
        with pytest.raises(MessageTooLarge, match="963"):
            key.sign(0, bytes(MAX_SIGNED_CONTENT + 1))

    def test_packets_of_unsigned_streams_are_not_stripped(self) -> None:
        assert not is_signed(PLAIN)
        assert strip_signature(PLAIN, b"x" * 200) == b"x" * 200


class TestKeys:
    def test_the_encoding_of_signing_keys_is_unchanged(self) -> None:
        assert named_key("weather").hex() == "dafbd2ff75ee1191d1d69ea0648300c2d8998346"
        assert stream_key(bytes(32)).hex() == "ed25519ff8459a3f6cb7781298cea80cc64d19dd"

    @given(st.text(max_size=20))
    def test_a_named_key_is_unsigned(self, name: str) -> None:
        key = named_key(name)
        assert len(key) == 20
        assert not is_signed(key)
        assert key == named_key(name)
        if name:
            assert parse_key(f"name:{name}") == key

    def test_a_name_whose_digest_begins_with_the_mark_gets_another_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = named_key("weather")
        monkeypatch.setattr(signing, "KEY_PREFIX", first[:4])
        assert named_key("weather")[:4] != first[:4]
        assert len(named_key("weather")) == 20

    @given(st.binary(min_size=20, max_size=20))
    def test_a_key_is_read_from_its_digits(self, key: bytes) -> None:
        assert parse_key(key.hex()) == parse_key(key.hex().upper()) == key

    @pytest.mark.parametrize("text", ["", "name:", "name", "weather", "ab" * 19, "ab" * 21, "0x" + "a" * 38, "ä" * 40])
    def test_a_malformed_key_is_refused_with_the_expected_format(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match=r"is not a key; give 40 hexadecimal digits, or name:NAME"):
            parse_key(text)

    def test_a_text_of_any_length_does_not_make_a_long_error(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            parse_key("a" * 10_000)
        assert len(str(caught.value)) < 200

    def test_keys_of_signed_streams_are_recognized(self) -> None:
        key = SigningKey(SEED)
        assert key.key.startswith(KEY_PREFIX)
        assert len(key.key) == 20
        assert repr(key) == f"<SigningKey of {key.key.hex()}>"
        assert SEED.hex() not in repr(key)

    def test_generated_keys_differ(self) -> None:
        assert len({SigningKey.generate().key for _ in range(20)}) == 20

    @pytest.mark.parametrize("size", [0, 31, 33])
    def test_a_seed_has_32_bytes(self, size: int) -> None:
        with pytest.raises(ConfigurationError, match=f"has 32 bytes, not {size}"):
            SigningKey(bytes(size))


class TestFiles:
    def test_a_key_file_is_readable_by_its_owner_only(self, tmp_path: Path) -> None:
        path, key = tmp_path / "key", SigningKey(SEED)
        key.write(path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_text() == SEED.hex() + "\n"
        again = SigningKey.read(path)
        assert again.key == key.key
        assert verify(key.key, 7, again.sign(7, b"hello"))

    def test_an_existing_key_file_is_not_overwritten(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        SigningKey(SEED).write(path)
        with pytest.raises(ConfigurationError, match=r"key exists already; choose another name"):
            SigningKey(OTHER).write(path)
        assert path.read_text() == SEED.hex() + "\n"

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
    def test_a_key_file_accessible_to_others_is_refused(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "key"
        SigningKey(SEED).write(path)
        path.chmod(mode)
        with pytest.raises(ConfigurationError, match=r"key is accessible to other users; chmod 600 it"):
            SigningKey.read(path)

    @pytest.mark.parametrize("text", ["", "abc", SEED.hex()[:-2], SEED.hex() + "00", "x" * 64, "ä" * 32])
    def test_a_malformed_key_file_is_refused_without_showing_its_content(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "key"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        with pytest.raises(ConfigurationError, match=r"key does not contain 64 hexadecimal digits") as caught:
            SigningKey.read(path)
        assert not text or text not in str(caught.value)

    def test_unreadable_and_unwritable_key_files_are_reported_with_the_reason(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"nowhere cannot be read: No such file or directory"):
            SigningKey.read(tmp_path / "nowhere")
        with pytest.raises(ConfigurationError, match=r"cannot be read: Is a directory"):
            SigningKey.read(tmp_path)
        with pytest.raises(ConfigurationError, match=r"key cannot be written: No such file or directory"):
            SigningKey(SEED).write(tmp_path / "nowhere" / "key")


class TestWithoutCryptography:
    @pytest.fixture(autouse=True)
    def _hidden(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)

    def test_operations_without_the_package_explain_how_to_install_it(self) -> None:
        public = bytes(32)
        for call in (
            lambda: SigningKey(SEED),
            SigningKey.generate,
            lambda: verify(stream_key(public), 7, public + bytes(64)),
        ):
            with pytest.raises(ConfigurationError, match=r"pip install 'fyrehose_twisted\[keys\]'"):
                call()

    def test_operations_that_do_not_need_the_package_work_without_it(self) -> None:
        key = stream_key(bytes(32))
        assert is_signed(key)
        assert strip_signature(key, bytes(SIGNATURE_OVERHEAD) + b"hello") == b"hello"
        assert not verify(key, 7, b"too short")
        assert not verify(PLAIN, 7, bytes(200))

    def test_can_verify_detects_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert can_verify()
        monkeypatch.setattr(signing, "find_spec", lambda name: None)
        assert not can_verify()
