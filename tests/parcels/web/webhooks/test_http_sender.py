"""Webhook requests on real sockets: allowed targets and handling of responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_twisted
from parcels.web.harness import WaitUntil
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, succeed
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock

from fyrehose_twisted.parcels.web import WebConfig
from fyrehose_twisted.parcels.web.webhooks.ssrf import (
    AddressNotAllowed,
    InvalidUrl,
    check_url,
    checked_resolver,
    is_public,
    reactor_resolver,
)

TreqSender: Any = pytest.importorskip("fyrehose_twisted.parcels.web.webhooks.http_sender").TreqSender

inline = pytest_twisted.ensureDeferred
reactor: Any = installed_reactor

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Hook(Protocol):
    """Server connection that sends the same response to each request."""

    def __init__(self) -> None:
        self.data = b""

    def connectionMade(self) -> None:
        self.factory.connections += 1  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        while b"\r\n\r\n" in self.data and self.data.partition(b"\r\n\r\n")[2]:
            self.factory.requests.append(self.data)  # type: ignore[union-attr]
            self.data = b""
            self.transport.write(self.factory.answer)  # type: ignore[union-attr]

    def connectionLost(self, reason: Any = None) -> None:
        self.factory.lost += 1  # type: ignore[union-attr]


class Hooks:
    """Webhook server on loopback."""

    def __init__(self) -> None:
        self.factory: Any = Factory.forProtocol(Hook)
        self.factory.answer, self.factory.requests = OK, []
        self.factory.connections = self.factory.lost = 0
        self.port = reactor.listenTCP(0, self.factory, interface="127.0.0.1")
        self.url = f"http://hook.example:{self.port.getHost().port}/path?q=1"


@pytest.fixture
def hooks(reached: WaitUntil) -> Iterator[Hooks]:
    made = Hooks()
    yield made
    pytest_twisted.blockon(made.port.stopListening())
    pytest_twisted.blockon(Deferred.fromCoroutine(reached(lambda: made.factory.lost == made.factory.connections)))


MakeSender = Callable[..., TreqSender]


@pytest.fixture
def senders() -> Iterator[MakeSender]:
    made: list[TreqSender] = []

    def make(*addresses: str, allow: bool = True, clock: Any = None, **more: Any) -> TreqSender:
        # Test servers listen on ephemeral ports.
        ports = more.pop("callback_ports", range(1, 65_536))
        config = WebConfig(allow_private_callbacks=allow, callback_ports=tuple(ports), **more)
        names = iter(addresses)
        left = [""]

        def resolve(host: str) -> Deferred[list[str]]:
            left[0] = next(names, left[0])
            return succeed(left[0].split() if left[0] else [])

        made.append(TreqSender(config, clock or reactor, resolve=resolve))
        return made[-1]

    yield make
    for sender in made:
        pytest_twisted.blockon(sender.close())


@inline
async def test_webhook_connection_is_reused_for_many_events(hooks: Hooks, senders: MakeSender) -> None:
    sender = senders("127.0.0.1")
    for number in range(5):
        assert await sender.post(hooks.url, {"Event-Sequence": str(number)}, b"body") == 200
    head, _, body = hooks.factory.requests[3].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /path?q=1 HTTP/1.1\r\n")
    assert f"Host: hook.example:{hooks.port.getHost().port}".encode() in head
    assert b"Event-Sequence: 3" in head
    assert b"Content-Length: 4" in head
    assert b"ccept-" not in head
    assert body == b"body"
    assert hooks.factory.connections == 1


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno", 500),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 302),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 200_000, 200),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope", 200),
        (b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n", 200),
    ],
)
@inline
async def test_webhook_status_is_returned_and_no_redirect_is_followed(
    hooks: Hooks, senders: MakeSender, answer: bytes, status: int
) -> None:
    hooks.factory.answer = answer
    sender = senders("127.0.0.1")
    assert await sender.post(hooks.url, {}, b"1") == status
    assert await sender.post(hooks.url, {}, b"2") == status
    assert b"ookie" not in hooks.factory.requests[-1]
    assert len(hooks.factory.requests) == 2


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx"])
@inline
async def test_unresponsive_webhook_times_out(
    hooks: Hooks, senders: MakeSender, reached: WaitUntil, answer: bytes
) -> None:
    clock = Clock()
    hooks.factory.answer = answer
    sender = senders("127.0.0.1", clock=TimedReactor(clock))
    posted = sender.post(hooks.url, {}, b"1")
    await reached(lambda: bool(hooks.factory.requests))
    clock.advance(9.9)
    assert not posted.called
    clock.advance(0.2)
    with pytest.raises(TimeoutError):
        await posted
    await reached(lambda: hooks.factory.lost == 1)


class TimedReactor:
    """Reactor with real sockets and a manual clock."""

    def __init__(self, clock: Clock) -> None:
        self.callLater = clock.callLater
        self.seconds = clock.seconds
        self.connectTCP = reactor.connectTCP


@inline
async def test_malformed_webhook_response_fails(hooks: Hooks, senders: MakeSender) -> None:
    hooks.factory.answer = b"HELLO\r\n\r\n"
    with pytest.raises(Exception, match=r"(?i)parse|response"):
        await senders("127.0.0.1").post(hooks.url, {}, b"1")


@inline
async def test_cancelled_webhook_delivery_disconnects(hooks: Hooks, senders: MakeSender, reached: WaitUntil) -> None:
    hooks.factory.answer = b""
    posted = senders("127.0.0.1").post(hooks.url, {}, b"1")
    await reached(lambda: bool(hooks.factory.requests))
    posted.cancel()
    with pytest.raises(CancelledError):
        await posted
    await reached(lambda: hooks.factory.lost == 1)


@inline
async def test_private_webhook_addresses_are_refused_when_connecting(hooks: Hooks, senders: MakeSender) -> None:
    # The name resolved to a public address at the registration of the webhook.
    sender = senders("93.184.215.14", "127.0.0.1", allow=False)
    await sender.check(hooks.url)
    with pytest.raises(AddressNotAllowed):
        await sender.post(hooks.url, {}, b"1")
    with pytest.raises(AddressNotAllowed):
        await senders("93.184.215.14 127.0.0.1", allow=False).check(hooks.url)
    with pytest.raises(AddressNotAllowed):
        await senders("", allow=False).check(hooks.url)
    with pytest.raises(InvalidUrl):
        await senders("1.1.1.1").check("file:///etc/passwd")
    assert hooks.factory.connections == 0


@inline
async def test_webhook_ports_are_restricted_to_the_allowed_ones(hooks: Hooks, senders: MakeSender) -> None:
    sender, port = senders("127.0.0.1", callback_ports=(80, 443)), hooks.port.getHost().port
    for ask in (sender.check(hooks.url), sender.post(hooks.url, {}, b"1")):
        with pytest.raises(AddressNotAllowed):
            await ask
    assert hooks.factory.connections == 0
    for url in ("http://a", "https://a", "http://a:443/", "https://a:80/"):
        await sender.check(url)
    assert await senders("127.0.0.1", callback_ports=(80, 443, port)).post(hooks.url, {}, b"1") == 200


@inline
async def test_refusal_of_a_webhook_target_does_not_disclose_its_address(hooks: Hooks, senders: MakeSender) -> None:
    port = hooks.port.getHost().port
    refusals = []
    for addresses, url in (
        ("127.0.0.1", "http://a:80/"),
        ("10.0.0.1 1.1.1.1", "http://a:80/"),
        ("", "http://a:80/"),
        ("1.1.1.1", f"http://a:{port}/"),
        ("127.0.0.1", f"http://a:{port}/"),
        ("1.1.1.1", "http://a:0/"),
    ):
        for ask in ("check", "post"):
            sender = senders(addresses, allow=False, callback_ports=(80, 443))
            with pytest.raises(AddressNotAllowed) as refused:
                await (sender.check(url) if ask == "check" else sender.post(url, {}, b"1"))
            refusals.append(str(refused.value))
    assert len(refusals) == 12
    assert len(set(refusals)) == 1


@inline
async def test_next_resolved_address_is_tried_after_a_failed_connect(hooks: Hooks, senders: MakeSender) -> None:
    assert await senders("::1 127.0.0.1").post(hooks.url, {}, b"1") == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "localhost", "[::1]", "0"])
@inline
async def test_every_spelling_of_loopback_is_refused(host: str) -> None:
    check = checked_resolver(reactor_resolver(reactor), False)
    with pytest.raises(AddressNotAllowed):
        await check(check_url(f"http://{host}:8004/"))


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.255.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
        ),
        *("169.254.169.254", "169.254.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("198.18.0.1", "198.51.100.1", "203.0.113.1", "168.63.129.16", "192.88.99.1", "192.0.0.1", "100.100.100.200"),
        *("::", "::1", "fe80::1", "fe80::1%1", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1", "2001:db8::1"),
        *(
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "::7f00:1",
        ),
        *("64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1", "2001:0:5ef5::1", "100::1", "fec0::1", "3fff::1"),
    ],
)
def test_non_public_address_is_recognized(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "172.32.0.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_public_address_is_recognized(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a", "a"),
        ("https://a.example:8443/x?y=z&q=%20", "a.example"),
        ("http://[2606:4700::1111]:80/", "2606:4700::1111"),
        ("http://A_b-c.example?x", "a_b-c.example"),
    ],
)
def test_valid_webhook_url_yields_its_host(url: str, host: str) -> None:
    assert check_url(url) == host


@pytest.mark.parametrize(
    "url",
    [
        *("", "a", "//a", "http:/a", "http://", "http:///a", "ftp://a", "javascript:1", "http://a b/", "http://a/\n"),
        *(
            "http://user@a/",
            "http://u:p@a/",
            "http://a\\@b/",
            "http://a/#x",
            "http://a%2eb/",
            "http://a..b/",
            "http://.a/",
        ),
        *(
            "http://" + "a" * 64 + "/",
            "http://\uff11/",
            "http://[fe80::1%25eth0]/",
            "HTTP://a/",
            "http://a:/",
            " http://a/",
        ),
    ],
)
def test_invalid_webhook_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        check_url(url)


@pytest.mark.parametrize("url", ["http://a:0/", "http://a:99999/", "http://[:::]/", "http://[12]/"])
def test_webhook_url_of_a_forbidden_host_is_refused(url: str) -> None:
    with pytest.raises(AddressNotAllowed):
        check_url(url)


def certificate(name: str) -> tuple[Any, Any]:
    """Make a certificate for ``name``; return options of the server and of a client that trusts it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from twisted.internet import ssl

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ssl.PrivateCertificate.loadPEM(pem + private), ssl.Certificate.loadPEM(pem)


@pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")
@pytest.mark.parametrize(("name", "trusted"), [("hook.example", True), ("other.example", False)])
@inline
async def test_webhook_tls_verifies_the_host_name(hooks: Hooks, name: str, trusted: bool) -> None:
    from twisted.web.client import BrowserLikePolicyForHTTPS

    server, believed = certificate(name)
    names: list[bytes | None] = []
    options = server.options()
    options.getContext().set_tlsext_servername_callback(lambda connection: names.append(connection.get_servername()))
    port = reactor.listenSSL(0, hooks.factory, options, interface="127.0.0.1")
    policy = BrowserLikePolicyForHTTPS(trustRoot=believed)
    config = WebConfig(allow_private_callbacks=True, callback_ports=(port.getHost().port,))
    sender = TreqSender(config, reactor, resolve=lambda host: succeed(["127.0.0.1"]), policy=policy)
    posted = sender.post(f"https://hook.example:{port.getHost().port}/", {}, b"1")
    if trusted:
        assert await posted == 200
    else:
        with pytest.raises(Exception, match="VerificationError"):
            await posted
    assert names == [b"hook.example"]
    assert len(hooks.factory.requests) == trusted
    await sender.close()
    await port.stopListening()
