from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.sealing import STREAM, ring, seal_key

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sealing.key_file import (
    create_key_ring,
    create_signing_key,
    read_key_ring,
    read_signing_key,
    replace_key_ring,
)
from fyrehose_twisted.sealing.key_ring import (
    MAX_KEYS,
    KeyRing,
    check_publisher_name,
    check_stream_uri,
    format_key_ring,
    parse_key_ring,
)
from fyrehose_twisted.sealing.keys import ALGORITHMS, SealKey
from fyrehose_twisted.sealing.signing import SigningKey

HEX = "ab" * 32
HEAD = f"stream {STREAM}\n"

keys = st.builds(SealKey, st.sampled_from(list(ALGORITHMS)), st.binary(min_size=32, max_size=32))


@given(
    st.lists(keys, min_size=1, max_size=4, unique_by=lambda key: key.id),
    st.dictionaries(
        st.from_regex(r"[a-z0-9_.@-]{1,8}", fullmatch=True), st.binary(min_size=32, max_size=32), max_size=3
    ),
)
def test_a_ring_survives_its_file(made: list[SealKey], publishers: dict[str, bytes]) -> None:
    publishers = {name: public for public, name in {public: name for name, public in publishers.items()}.items()}
    text = format_key_ring(KeyRing(STREAM, made, publishers))
    read = parse_key_ring(text, "keys")
    assert (read.stream, list(read.keys), read.publishers) == (STREAM, made, publishers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "keys names no stream: add a line 'stream fyrehose://NAME'"),
        (HEAD, "keys has no key: add one with fyrehose key add"),
        (f"key aes-256-gcm {HEX}", "names no stream"),
        (f"{HEAD}key aes-256-gcm {HEX[:-2]}", "line 2: a key has 64 hexadecimal digits; fyrehose key add makes one"),
        (f"{HEAD}\n# x\nkey aes-256-gcm {HEX[:-1]}g", "line 4: a key has 64 hexadecimal digits"),
        (f"{HEAD}key des {HEX}", "line 2: unknown algorithm 'des'; choose chacha20-poly1305 or aes-256-gcm"),
        (f"{HEAD}key {HEX}", "line 2: expected 'stream URI', 'key ALGORITHM HEX' or 'publisher NAME HEX'"),
        (f"{HEAD}{HEAD}", "line 2: a key file is for one stream"),
        (f"{HEAD}key aes-256-gcm {HEX}\nkey aes-256-gcm {HEX}", "line 3: this key stands in the file already"),
        (f"{HEAD}key aes-256-gcm {HEX}\npublisher a b", "line 3: a key has 64 hexadecimal digits; fyrehose key trust"),
        (f"{HEAD}publisher a {HEX}\npublisher a {HEX}", "line 3: publisher a has a public key already"),
        (f"{HEAD}key aes-256-gcm {HEX}\npublisher a {HEX}\npublisher b {HEX}", "two publishers have the same public"),
        (f"{HEAD}publisher a/b {HEX}", "line 2: expected"),
        ("stream \xe9", "line 1: expected"),
    ],
)
def test_a_bad_file_is_told_with_line_and_remedy(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as raised:
        parse_key_ring(text, "keys")
    assert HEX not in str(raised.value)


@given(st.text(max_size=80))
def test_arbitrary_text_raises_only_configuration_errors(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_key_ring(text, "keys")


def test_the_number_of_keys_is_limited() -> None:
    with pytest.raises(ConfigurationError, match="65 keys; at most 64"):
        ring(*range(1, MAX_KEYS + 2))


def test_ids_tell_algorithms_apart() -> None:
    assert len({seal_key(1, algorithm).id for algorithm in ALGORITHMS}) == len(ALGORITHMS)
    assert seal_key(1) == seal_key(1) != seal_key(2)
    assert seal_key(1) != object()
    assert len({seal_key(1), seal_key(1)}) == 1


@pytest.mark.parametrize(("text", "uri"), [("prices", STREAM), (STREAM, STREAM), ("hydra://x", "hydra://x")])
def test_a_stream_is_given_by_name_or_uri(text: str, uri: str) -> None:
    assert check_stream_uri(text) == uri


@pytest.mark.parametrize("text", ["", "a b", "fyrehose://", "x" * 300, "a#b"])
def test_names_that_no_stream_has_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the name of a stream"):
        check_stream_uri(text)


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a/b"])
def test_names_that_no_publisher_has_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="use letters, digits"):
        check_publisher_name(name)


class TestFiles:
    def test_a_new_file_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        for path, create in (
            (tmp_path / "a", lambda path: create_key_ring(path, ring())),
            (tmp_path / "b", lambda path: create_signing_key(path, SigningKey(bytes(32)))),
        ):
            create(path)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(ConfigurationError, match="exists already; choose another name"):
                create(path)
        assert read_key_ring(tmp_path / "a").keys == ring().keys
        assert read_signing_key(tmp_path / "b").public == SigningKey(bytes(32)).public

    def test_a_file_that_others_can_read_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "keys"
        create_key_ring(path, ring())
        path.chmod(0o644)
        with pytest.raises(ConfigurationError, match=f"seal key file {path} is accessible to all users; chmod 600 it"):
            read_key_ring(path)

    @pytest.mark.parametrize("mode", [0o600, 0o640])
    def test_a_replaced_file_keeps_its_mode(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "keys"
        create_key_ring(path, ring())
        path.chmod(mode)
        replace_key_ring(path, ring(2, 1))
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert read_key_ring(path).keys == ring(2, 1).keys
        assert list(tmp_path.iterdir()) == [path]

    def test_a_replaced_link_stays_a_link(self, tmp_path: Path) -> None:
        path, link = tmp_path / "keys", tmp_path / "link"
        create_key_ring(path, ring())
        link.symlink_to(path)
        replace_key_ring(link, ring(2))
        assert link.is_symlink()
        assert read_key_ring(path).keys == ring(2).keys

    def test_missing_files_and_other_files_are_refused(self, tmp_path: Path) -> None:
        other = tmp_path / "other"
        with pytest.raises(ConfigurationError, match=f"seal key file {other} cannot be read: No such file"):
            read_key_ring(other)
        with pytest.raises(ConfigurationError, match="cannot be written: No such file"):
            replace_key_ring(other, ring())
        with pytest.raises(ConfigurationError, match="cannot be written: No such file"):
            create_key_ring(other / "keys", ring())
        other.touch(0o600)
        other.write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigurationError, match="is not text; create a file with fyrehose key new"):
            read_key_ring(other)
        other.write_bytes(b"#" * (2**20 + 1))
        with pytest.raises(ConfigurationError, match="is longer than 1,048,576 bytes; it is another file"):
            read_key_ring(other)
        with pytest.raises(ConfigurationError, match="does not contain 64 hexadecimal digits; create one with"):
            read_signing_key(other)
