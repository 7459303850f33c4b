"""Sockets passed by systemd."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from twisted.internet import endpoints
from twisted.python.systemd import ListenFDs

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.options import ServerEndpoint, parse_server_endpoint, require_protection
from fyrehose_twisted.net.socket_activation import activated_socket, activated_udp_socket, is_local


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, socket.socket]]:
    """Return sockets passed as by systemd."""
    made = {
        "push": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "http": socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "open": socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "six": socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
        "unix": socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        "push6": socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
    }
    hosts = {"push": "127.0.0.1", "http": "127.0.0.2", "open": "0.0.0.0", "six": "::1", "push6": "::1"}
    for name, host in hosts.items():
        made[name].bind((host, 0))
    found = ListenFDs([one.fileno() for one in made.values()], list(made))
    parser: Any = endpoints._SystemdParser
    monkeypatch.setattr(parser, "_sddaemon", found)
    yield made
    for one in made.values():
        one.close()


def test_activated_sockets_are_found_by_name_and_index(passed: dict[str, socket.socket]) -> None:
    for number, (name, one) in enumerate(passed.items()):
        for copy in (activated_socket("x", name=name), activated_socket("x", index=number)):
            with closing(copy):
                assert copy.getsockname() == one.getsockname()
    assert all(one.fileno() >= 0 for one in passed.values())


def test_a_socket_that_was_not_passed_is_an_error(passed: dict[str, socket.socket]) -> None:
    with pytest.raises(ConfigurationError, match=r"--x: systemd passed no socket named y \(it passed push, http"):
        activated_socket("x", name="y")
    with pytest.raises(ConfigurationError, match="no socket number 6"):
        activated_socket("x", index=6)


def test_socket_activation_without_systemd_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="it passed none"):
        activated_socket("x", name="y")


@pytest.mark.parametrize("name", ["push", "push6"])
def test_an_activated_udp_socket_is_nonblocking(passed: dict[str, socket.socket], name: str) -> None:
    with closing(activated_udp_socket("x", name)) as found:
        assert found.type & socket.SOCK_DGRAM
        assert not found.getblocking()
        assert found.getsockname() == passed[name].getsockname()
    for other in ("http", "six", "unix"):
        with pytest.raises(ConfigurationError, match="not of type UDP"):
            activated_udp_socket("x", other)


DOMAINS = {"http": "INET", "open": "INET", "six": "INET6", "unix": "UNIX"}


@pytest.mark.parametrize(("name", "local"), [("http", True), ("open", False), ("six", True), ("unix", True)])
def test_an_activated_socket_is_local_by_its_address(passed: dict[str, socket.socket], name: str, local: bool) -> None:
    with closing(activated_socket("x", name=name)) as found:
        assert is_local(found) is local
    text = f"systemd:domain={DOMAINS[name]}:name={name}"
    listening = parse_server_endpoint("http", text, "tcp:1")
    assert listening == ServerEndpoint(text, None, local)
    if local:
        require_protection("http", listening, False, "--token")
    else:
        with pytest.raises(ConfigurationError, match="not on loopback"):
            require_protection("http", listening, False, "--token")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("systemd:domain=INET:name=six", "that socket is of another address family; use domain=INET6"),
        ("systemd:domain=INET:name=unix", "use domain=UNIX"),
        ("systemd:name=http", "use domain=INET"),
        ("systemd:domain=INET:name=push", "that socket is a UDP socket; give the .socket unit ListenStream="),
        ("systemd:domain=INET:index=-1", "systemd passed no socket number"),
        ("systemd:domain=INET:index=" + "1" * 5_000, "systemd passed no socket number"),
        ("systemd:domain=INET", "systemd passed no socket number"),
    ],
)
@pytest.mark.usefixtures("passed")
def test_an_endpoint_that_does_not_match_the_activated_socket_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^--http.*{said}"):
        parse_server_endpoint("http", text, "tcp:1")
