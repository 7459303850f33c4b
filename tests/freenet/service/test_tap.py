"""Options of ``twistd freenet-node`` and their errors."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from twisted.python.usage import UsageError

from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.freenet.protocol import FreenetPeerProtocol
from fyrehose_twisted.freenet.service import tap
from fyrehose_twisted.freenet.service.service import FreenetService
from fyrehose_twisted.freenet.service.storage import PacketStorage, stream_uri
from fyrehose_twisted.freenet.wire.signing import named_key
from fyrehose_twisted.journal.store import open_journal


class OfOurs(FreenetPeerProtocol):
    """Subclass of an application."""


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(b"a secret that is long enough")
    (tmp_path / "secret").chmod(0o600)
    return tmp_path


def options(*arguments: str) -> tap.Options:
    parsed = tap.Options()
    parsed.parseOptions(list(arguments))
    return parsed


def test_the_default_options_listen_on_loopback_without_peers() -> None:
    parsed = options()
    assert [listening.description for listening in parsed["listening"]] == ["tcp:6180:interface=127.0.0.1"]
    assert parsed["policy"] == Policy()
    assert (parsed["place"], parsed["secret"], parsed["state-path"], parsed["directory"]) == (None, None, None, None)
    assert parsed["class"] is FreenetPeerProtocol


def test_all_options_are_parsed(tmp_path: Path) -> None:
    parsed = options(
        *("--listen", "6181", "--listen", "tcp:6182:interface=10.0.0.1", "--peer", "10.0.0.2:6180", "--peer", "a:1"),
        *("--location", "0.5", "--state", "state", "--journal", "kept", "--retention", "7d", "--control", "unix:c"),
        *(
            "--metrics",
            "9100",
            "--secret-file",
            "secret",
            "--max-neighbours",
            "7",
            "--max-streams",
            "5",
            "--keep",
            "99",
        ),
        *("--max-htl", "18", "--p-max", "0.5", "--p-min", "0", "--htl-on-closer", "keep", "--accept", "own"),
        *("--coalesce", "reject", "--on-parent-lost", "teardown", "--confirm-root"),
        *("--subscribe", "name:news", "--subscribe", "00" * 20, "--subscribe", "name:news"),
        *("--protocol", f"{__name__}.OfOurs"),
    )
    assert [listening.description for listening in parsed["listening"]] == [
        "tcp:6181:interface=127.0.0.1",
        "tcp:6182:interface=10.0.0.1",
    ]
    assert parsed["peers"] == ["10.0.0.2:6180", "a:1"]
    assert parsed["keys"] == [named_key("news"), bytes(20)]
    assert parsed["policy"] == Policy(
        max_htl=18,
        p_max=0.5,
        p_min=0.0,
        htl_on_closer="keep",
        accept="own",
        coalesce="reject",
        on_parent_lost="teardown",
        confirm_root=True,
        max_streams=5,
        keep_packets=99,
    )
    assert (parsed["place"], parsed["state-path"], parsed["directory"]) == (0.5, tmp_path / "state", tmp_path / "kept")
    assert parsed["class"].__name__ == "OfOurs"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--location 1", "--location 1: a location goes from 0 up to, but not including, 1"),
        ("--location -0.1", "a location goes from 0"),
        ("--location nan", "a location goes from 0"),
        ("--location x", "--location 'x' is not a number"),
        ("--subscribe x", "'x' is not a key; give 40 hexadecimal digits, or name:NAME"),
        (
            "--max-streams 1 --subscribe name:a --subscribe name:b",
            "--subscribe is given 2 times, but --max-streams is 1",
        ),
        ("--max-streams 0", "--max-streams 0 is outside 1 to 1000000"),
        ("--max-htl 256", "--max-htl 256 is outside 1 to 255"),
        ("--keep x", "--keep 'x' is not a whole number"),
        ("--p-max 2", "--p-max 2 is outside 0 to 1"),
        ("--coalesce never", "coalesce='never': choose one of queue, reject, parallel"),
        ("--accept all", "accept='all': choose one of root, own"),
        ("--on-parent-lost cry", "on_parent_lost='cry': choose one of graft, teardown"),
        ("--htl-on-closer x", "htl_on_closer='x': choose one of reset, keep"),
        ("--listen tcp:6180:interface=0.0.0.0", "is not on loopback: give --secret-file"),
        ("--listen udp:6180", "is a UDP port"),
        ("--control tcp:1:interface=0.0.0.0", "any client that reaches it publishes in this node's name"),
        ("--retention 7d", "--retention requires --journal DIR"),
        ("--journal x --retention bogus", "bogus"),
        ("--secret-file nowhere", "nowhere"),
        ("--protocol nowhere.Nothing", "--protocol nowhere.Nothing cannot be imported"),
        ("--protocol builtins.dict", "is not a subclass of fyrehose_twisted.freenet.protocol.FreenetPeerProtocol"),
    ],
)
def test_invalid_options_are_refused_in_one_line(arguments: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        options(*arguments.split())
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


def test_other_interfaces_require_a_secret_or_open() -> None:
    for how in (["--open"], ["--secret-file", "secret"]):
        (listening,) = options("--listen", "tcp:6180:interface=0.0.0.0", *how)["listening"]
        assert not listening.local


def test_the_options_make_a_service(tmp_path: Path, free_port: Any) -> None:
    service = tap.makeService(options("--listen", f"tcp:{free_port()}", "--peer", "127.0.0.1:1", "--journal", "kept"))
    assert isinstance(service, FreenetService)
    assert not (tmp_path / "kept").exists()


def test_errors_of_the_start_are_reported_before_it(tmp_path: Path, free_port: Any) -> None:
    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit) as raised:
            tap.makeService(options(*arguments))
        text = str(raised.value)
        assert text.startswith("freenet-node: ")
        return text

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "stop what listens there" in refused("--listen", f"tcp:{taken.getsockname()[1]}")
    port = f"tcp:{free_port()}"
    assert "are the same port; give each its own" in refused("--listen", port, "--control", port)
    assert "--peer 'x' is neither HOST:PORT" in refused("--listen", port, "--peer", "x")
    (tmp_path / "file").write_text("")
    assert "cannot be written:" in refused("--listen", port, "--journal", "file/kept")
    assert "cannot be written:" in refused("--listen", port, "--state", "file/state")
    journal = open_journal(tmp_path / "kept", stream_uri(named_key("news")))
    assert "is in use by another process" in refused("--listen", port, "--journal", "kept", "--subscribe", "name:news")
    journal.close()
    assert PacketStorage(tmp_path / "kept").directory == tmp_path / "kept"
