"""Endpoints with certificates of both ends, on real loopback sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from suite.authority import Authority, Issued
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import clientFromString, connectProtocol, serverFromString
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.options.endpoints import parse_server_endpoint, require_protection

pytest.importorskip("OpenSSL")
# Twisted passes certificates in a way that pyOpenSSL deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")
reactor: Any = installed_reactor
inline = pytest_twisted.ensureDeferred


class Echo(Protocol):
    """Echoes what it receives, and tells how it ends."""

    received = b""

    def __init__(self) -> None:
        self.ended: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        self.transport.write(data)  # type: ignore[union-attr]

    def connectionLost(self, reason: Any = None) -> None:
        self.ended.callback(None)


class Caller(Protocol):
    """Sends a greeting, and waits for it, or for the end."""

    def __init__(self) -> None:
        self.answered: Deferred[bytes] = Deferred()

    def connectionMade(self) -> None:
        self.transport.write(b"hello")  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        self.answered.callback(data)

    def connectionLost(self, reason: Any = None) -> None:
        if not self.answered.called:
            self.answered.errback(reason or Failure(ConnectionLost()))


class Server:
    """Listening server.

    :ivar accepted: protocols of its connections.
    """

    port: Any = None
    number = 0

    def __init__(self) -> None:
        self.accepted: list[Echo] = []

    async def start(self, description: str) -> Server:
        factory = Factory.forProtocol(Echo)
        factory.buildProtocol = self._accept  # type: ignore[method-assign]
        self.port = await serverFromString(reactor, description).listen(factory)
        self.number = self.port.getHost().port
        return self

    def _accept(self, address: Any) -> Echo:
        self.accepted.append(Echo())
        return self.accepted[-1]


Listen = Callable[..., Awaitable[Server]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def listen(authority: Authority) -> Iterator[Listen]:
    """Return a function that starts a server, which is stopped after the test."""
    servers: list[Server] = []

    async def started(issued: Issued) -> Server:
        servers.append(Server())
        return await servers[-1].start(f"mtls:0:{files(issued, authority)}")

    yield started
    for server in servers:
        pytest_twisted.blockon(server.port.stopListening())


def files(issued: Issued, authority: Authority) -> str:
    return f"cert={issued.certificate}:key={issued.key}:ca={authority.path}"


async def call(description: str) -> bytes:
    caller = Caller()
    await connectProtocol(clientFromString(reactor, description), caller)
    try:
        return await caller.answered
    finally:
        caller.transport.loseConnection()  # type: ignore[union-attr]


@inline
async def test_ends_with_certificates_of_one_authority_communicate(authority: Authority, listen: Listen) -> None:
    server = await listen(authority.issue("server"))
    client = files(authority.issue("client", "192.0.2.1"), authority)
    assert await call(f"mtls:127.0.0.1:{server.number}:{client}") == b"hello"
    await server.accepted[0].ended


@pytest.mark.parametrize(
    ("has_certificate", "complaint"),
    [(False, r"certificate required|handshake failure|Connection"), (True, r"unknown ca|Connection")],
)
@inline
async def test_client_without_a_certificate_of_the_authority_is_refused(
    authority: Authority, listen: Listen, tmp_path: Path, has_certificate: bool, complaint: str
) -> None:
    server = await listen(authority.issue("server"))
    client = f"tls:127.0.0.1:{server.number}:trustRoots={tmp_path}"
    if has_certificate:
        client = f"mtls:127.0.0.1:{server.number}:{files(Authority(tmp_path, 'other').issue('client'), authority)}"
    with pytest.raises(Exception, match=complaint):
        await call(client)
    assert [one.received for one in server.accepted] == [b""]


@inline
async def test_client_refuses_a_server_with_a_certificate_of_another_authority_or_for_another_host(
    authority: Authority, listen: Listen, tmp_path: Path
) -> None:
    own = authority.issue("client")
    other = Authority(tmp_path, "other")
    server = await listen(authority.issue("server"))
    with pytest.raises(Exception, match=r"verify failed|Connection"):
        await call(f"mtls:127.0.0.1:{server.number}:{files(own, other)}")
    elsewhere = await listen(authority.issue("elsewhere", "192.0.2.7"))
    with pytest.raises(Exception, match=r"IPAddress|Verification|Connection"):
        await call(f"mtls:127.0.0.1:{elsewhere.number}:{files(own, authority)}")


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        ("mtls:7878", "mtls endpoint without cert=, key=, ca="),
        ("mtls:7878:cert={c}:key={k}", "mtls endpoint without ca="),
        ("mtls:port:cert={c}:key={k}:ca={a}", "mtls endpoint with the port 'port'; give a number up to 65535"),
        ("mtls:65536:cert={c}:key={k}:ca={a}", "mtls endpoint with the port '65536'; give a number up to 65535"),
        ("mtls:0:backlog=x:cert={c}:key={k}:ca={a}", "mtls endpoint with the backlog 'x'; give a number up to 65535"),
        ("mtls:0:::cert={c}:key={k}:ca={a}", "mtls endpoint with ''; name it, such as cert=FILE"),
        ("mtls:0:cert={c}:key={k}:ca={a}:what=7", "mtls endpoint with the unknown argument 'what'"),
        ("mtls:0:cert=none:key={k}:ca={a}", "certificate none cannot be read: No such file or directory"),
        ("mtls:0:cert={k}:key={k}:ca={a}", "certificate {k} has no certificate in PEM format"),
        ("mtls:0:cert={c}:key={c}:ca={a}", "key {c} is not the unencrypted PEM key of {c}"),
        ("mtls:0:cert={c}:key={k}:ca={k}", "authority {k} has no certificate in PEM format"),
    ],
)
def test_invalid_endpoint_is_refused(authority: Authority, description: str, complaint: str) -> None:
    issued = authority.issue("server")
    issued.certificate.chmod(0o600)
    named = {"c": issued.certificate, "k": issued.key, "a": authority.path}
    with pytest.raises(ConfigurationError) as raised:
        serverFromString(reactor, description.format(**named))
    assert str(raised.value) == complaint.format(**named)


def test_key_that_others_can_read_is_refused(authority: Authority) -> None:
    issued = authority.issue("server")
    issued.key.chmod(0o644)
    with pytest.raises(ConfigurationError, match="is accessible to all users; chmod 600 it"):
        clientFromString(reactor, f"mtls:127.0.0.1:7:{files(issued, authority)}")


def test_endpoint_listens_on_loopback_by_default_and_protects_itself() -> None:
    parsed = parse_server_endpoint("listen", "mtls:7878:cert=c:key=k:ca=a", "tcp:7878")
    assert parsed.description == "mtls:7878:cert=c:key=k:ca=a:interface=127.0.0.1"
    assert parsed.local
    exposed = parse_server_endpoint("listen", "mtls:7878:interface=10.0.0.1:cert=c:key=k:ca=a", "tcp:7878")
    assert not exposed.local
    require_protection("listen", exposed, False, "--secret-file")
    with pytest.raises(ConfigurationError):
        require_protection("listen", exposed._replace(mutual=False), False, "--secret-file")
