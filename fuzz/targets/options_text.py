"""Option values: addresses, endpoints, numbers, networks, keys, simulation faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.task import Clock

from fuzz.checks import attempt, check_size
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.service.dialer import parse_peer
from fyrehose_twisted.freenet.wire.signing import parse_key
from fyrehose_twisted.fyrehose.config import AddressList, parse_network
from fyrehose_twisted.fyrehose.service.options import parse_start
from fyrehose_twisted.hydra.irc.bots import parse_line
from fyrehose_twisted.hydra.wire.irc_line import IrcLogin
from fyrehose_twisted.net.addresses import (
    endpoint_factory_from,
    format_address,
    loopback_endpoint,
    parse_address,
    parse_host_port,
)
from fyrehose_twisted.net.options import integer_option, number_option, parse_server_endpoint, require_protection
from fyrehose_twisted.parcels.service.options import parse_advertised
from fyrehose_twisted.parcels.web.webhooks.ssrf import AddressNotAllowed, InvalidUrl, check_url
from fyrehose_twisted.sim.schedule import FaultSchedule

LONGEST = 6_000
"""More than the digits of a number that Python parses."""


def _listen(text: str) -> None:
    listening = parse_server_endpoint("listen", text, "tcp:6174", datagrams=True)
    attempt(lambda: require_protection("listen", listening, False, "--secret-file"), ConfigurationError)
    attempt(lambda: parse_advertised(None, listening), ConfigurationError)


def _place(text: str) -> None:
    place = parse_address(text)
    assert parse_address(format_address(place)) == place


def _faults(text: str) -> None:
    faults = FaultSchedule.parse(text)
    assert str(FaultSchedule.parse(str(faults))) == str(faults)


def _line(text: str) -> None:
    line = parse_line(text.encode("utf-8", "surrogateescape"), 1, 1)
    check_size(line, len(text.encode("utf-8", "surrogateescape")))


def _endpoint(text: str) -> None:
    if not text.startswith(("ssl:", "tls:")):  # These look up certificate files, which is no parsing.
        loopback_endpoint(Clock(), text)


WAYS: tuple[tuple[Callable[[str], Any], tuple[type[Exception], ...], tuple[str, ...]], ...] = (
    (
        _listen,
        (ConfigurationError,),
        ("6174", "tcp:6174:interface=\\:\\:1", "unix:/run/x:mode=660", "udp:port=1", "tls:x"),
    ),
    (parse_host_port, (ConfigurationError,), ("127.0.0.1:2323", "host:" + "9" * 4_400)),
    (_place, (ConfigurationError,), ("node.example:7878", "[::1]:7878", "[fe80::1%eth0]:1", "host:" + "9" * 4_400)),
    (integer_option("port", 0, 65_535), (ValueError,), ("7", " 1_0 ", "9" * 4_400)),
    (number_option("rate", 0.0, 1e3), (ValueError,), ("0.5", "nan", "-inf", "1e400")),
    (parse_network, (ConfigurationError,), ("10.0.0.0/8", "10.0.0.1/255.0.0.0")),
    (parse_start, (ValueError,), ("live", "17", "9" * 4_400)),
    (parse_key, (ConfigurationError,), ("name:news", "00" * 20)),
    (lambda text: parse_peer(text, Clock()), (ConfigurationError,), ("10.0.0.7:6180", "tls:node.example:6180")),
    (_faults, (ConfigurationError,), ("1.0 crash sub-1 killed for 2.5\n2.0 clock sub-1 +3.5 x1.1 for 6.0 # why\n",)),
    (IrcLogin, (ConfigurationError,), ("ivan", "#x")),
    (check_url, (InvalidUrl, AddressNotAllowed), ("http://example.org:80/x?y", "https://[::1]/", "http://a:99999/")),
    (endpoint_factory_from, (ConfigurationError,), ("tls:{host}:{port}",)),
    (_line, (), ("@time=1 :nick!user@host PRIVMSG #x :hello", "PING :x")),
    (_endpoint, (ConfigurationError,), ("tcp:9100", "9100", "unix:/x", "systemd:")),
    (lambda text: AddressList(text.split()), (ConfigurationError,), ("10.0.0.0/8 192.0.2.1",)),
)
"""Parsers, their exceptions, and example texts."""


def seeds() -> Iterable[bytes]:
    """Return texts with a prefix byte for the parser."""
    return [bytes((way,)) + text.encode() for way, (_, _, texts) in enumerate(WAYS) for text in texts]


def one(data: bytes) -> None:
    """Parse a text."""
    if data:
        read, errors, _ = WAYS[data[0] % len(WAYS)]
        text = data[1:].decode("utf-8", "surrogateescape")
        attempt(lambda: read(text), *errors)
