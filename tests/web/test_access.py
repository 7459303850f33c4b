"""Access control of all sites against requests that a web page makes a browser send."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.registry import CollectorRegistry
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from fyrehose_twisted.framing import Unframed
from fyrehose_twisted.fyrehose.frontend.service import FrontendService
from fyrehose_twisted.net.metrics import metrics_site
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.records.journals import JournalDirectory
from fyrehose_twisted.query.site import QuerySite
from fyrehose_twisted.web.config import SiteConfig
from fyrehose_twisted.web.response import HttpResponse
from fyrehose_twisted.web.site import Route, WebSite
from fyrehose_twisted.web.tokens import shared_token


class Wire(StringTransport):
    def setTcpNoDelay(self, enabled: bool) -> None:  # noqa: N802
        pass

    def abortConnection(self) -> None:
        self.disconnecting = True


def ask(site: Any, path: str, *headers: str, method: str = "GET", local: str = "127.0.0.1") -> int:
    wire = Wire(IPv4Address("TCP", local, 80), IPv4Address("TCP", "127.0.0.1", 40_000))
    channel = site.buildProtocol(wire.getPeer())
    channel.makeConnection(wire)
    lines = [f"{method} {path} HTTP/1.1", *headers, "Content-Length: 0", "", ""]
    channel.dataReceived("\r\n".join(lines).encode())
    channel.connectionLost(Failure(ConnectionDone()))
    return int(wire.value().split()[1])


def plain(config: SiteConfig | None = None, token: bytes | None = None) -> WebSite:
    tokens = None if token is None else shared_token(token)
    routes = [
        Route(
            "/x", {b"GET": lambda request: HttpResponse(200, b"{}"), b"POST": lambda request: HttpResponse(200, b"{}")}
        ),
        Route("/open", {b"GET": lambda request: HttpResponse(200, b"{}")}, open=True),
    ]
    return WebSite(routes, config or SiteConfig(), Clock(), tokens=tokens)


def _query(path: Path) -> tuple[WebSite, str]:
    return QuerySite(
        JournalDirectory(path, lambda stream, payloads: Unframed(payloads)), QueryConfig(), Clock()
    ), "/streams"


def _metrics(path: Path) -> tuple[WebSite, str]:
    return metrics_site(CollectorRegistry()), "/metrics"


def _frontend(path: Path) -> tuple[WebSite, str]:
    return FrontendService("127.0.0.1:2323", http=None, lines=None, reactor=Clock()).site, "/metrics"


SITES: dict[str, Callable[[Path], tuple[WebSite, str]]] = {
    "any": lambda path: (plain(), "/x"),
    "query": _query,
    "metrics": _metrics,
    "frontend": _frontend,
}
"""Sites without a token, each with a path."""


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[WebSite, str]:
    return SITES[request.param](tmp_path)


GOOD = ["localhost", "localhost:80", "LocalHost.", "127.0.0.1", "127.0.0.1:8480", "[::1]", "[::1]:80", "10.1.2.3", ""]
BAD = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "a:b:c",
    "[::1",
    "::1]",
    "localhost@evil",
    "1",
]


@pytest.mark.parametrize("host", GOOD)
def test_addresses_and_localhost_are_accepted_as_host(site: tuple[WebSite, str], host: str) -> None:
    assert ask(*site, f"Host: {host}") == 200


def test_missing_host_is_accepted(site: tuple[WebSite, str]) -> None:
    assert ask(*site) == 200


@pytest.mark.parametrize("host", BAD)
def test_unknown_host_names_are_refused(site: tuple[WebSite, str], host: str) -> None:
    assert ask(*site, f"Host: {host}") == 421


@pytest.mark.parametrize(
    "headers",
    [
        ("Origin: http://evil.example",),
        ("Origin: null",),
        ("Origin: http://localhost:81",),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"),
        ("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors"),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: websocket"),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"),  # For instance in a frame.
        ("Origin: evil://localhost",),
    ],
)
def test_requests_from_other_origins_are_refused(site: tuple[WebSite, str], headers: tuple[str, ...]) -> None:
    assert ask(*site, "Host: localhost", *headers) == 403


@pytest.mark.parametrize(
    "headers",
    [
        ("Origin: http://localhost",),
        ("Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors"),
        ("Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate"),
    ],
)
def test_requests_from_the_same_origin_are_accepted(site: tuple[WebSite, str], headers: tuple[str, ...]) -> None:
    assert ask(*site, "Host: localhost", *headers) == 200


def test_repeated_host_header_is_rejected(site: tuple[WebSite, str]) -> None:
    assert ask(*site, "Host: localhost", "Host: evil.example") == 400


def test_allowed_host_names_are_accepted() -> None:
    site = plain(SiteConfig(hosts=("Node.example",)))
    assert ask(site, "/x", "Host: node.example:80") == 200
    assert ask(site, "/x", "Host: other.example") == 421


def test_token_permits_any_host_name() -> None:
    site = plain(token=b"t" * 16)
    assert ask(site, "/x", "Host: node.example", f"Authorization: Bearer {'t' * 16}") == 200
    assert ask(site, "/open", "Host: node.example") == 421


def test_token_does_not_permit_other_origins() -> None:
    site = plain(token=b"t" * 16)
    headers = "Host: localhost", f"Authorization: Bearer {'t' * 16}"
    assert ask(site, "/x", *headers, "Origin: http://evil.example", method="POST") == 403


def test_allowed_origin_is_accepted() -> None:
    site = plain(SiteConfig(allowed_origin="https://good.example"))
    for method in ("GET", "POST"):
        assert ask(site, "/x", "Host: localhost", "Origin: https://good.example", method=method) == 200
        assert ask(site, "/x", "Host: localhost", "Origin: http://good.example", method=method) == 403


def test_metrics_accept_any_host_name_from_the_network(tmp_path: Path) -> None:
    site, path = _metrics(tmp_path)
    assert ask(site, path, "Host: node.example", local="192.0.2.1") == 200
    assert ask(site, path, "Host: node.example", local="127.0.0.2") == 421
    assert ask(_query(tmp_path)[0], "/streams", "Host: node.example", local="192.0.2.1") == 421


def test_other_sites_may_link_to_a_page(tmp_path: Path) -> None:
    headers = "Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"
    site = _query(tmp_path)[0]
    assert ask(site, "/", *headers) == 200
    assert ask(site, "/", *headers, method="POST") == 405
    assert ask(site, "/overview", *headers) == 403
