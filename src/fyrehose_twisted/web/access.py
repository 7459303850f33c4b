"""Access control: bearer tokens, host names and cross-origin checks."""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address

from fyrehose_twisted.host_addresses import source_network
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.config import SiteConfig
from fyrehose_twisted.web.request import single_header
from fyrehose_twisted.web.response import HttpError
from fyrehose_twisted.web.tokens import Tokens

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(:[0-9]*)?")


class AccessControl:
    """Access control of one site.

    A browser on the operator's machine can reach loopback, and any page can make it send requests. Without a token the
    ``Host`` must therefore be an address, ``localhost`` or an allowed name, which prevents DNS rebinding. Requests from
    pages of other sites are refused, including ``GET``.

    :param tokens: accepted tokens; ``None`` if none is required. May be replaced at any time.
    """

    def __init__(self, tokens: Tokens | None, config: SiteConfig) -> None:
        self.tokens = tokens
        self._origin = None if config.allowed_origin is None else config.allowed_origin.encode()
        self._hosts = frozenset(("localhost", *(host.lower() for host in config.hosts)))
        self._any_name_off_loopback = config.any_name_off_loopback

    def check(self, request: WebRequest, *, open: bool, page: bool = False) -> str:
        """Check that a request is permitted; return its client: the name of a token, or an address.

        :param open: whether the route requires no token.
        :param page: whether the route is a page, to which other sites may link.
        :raises HttpError: if the request is not permitted.
        """
        if self.tokens is not None and not open:
            client = self._check_token(request, self.tokens)
        else:
            self._check_host(request)
            client = source_network(getattr(request.getClientAddress(), "host", "local"))
        self._check_origin(request, page)
        return client

    def _check_token(self, request: WebRequest, tokens: Tokens) -> str:
        given = single_header(request, b"Authorization") or b""
        scheme, _, token = given.partition(b" ")
        name = tokens.name_of(token.strip()) if scheme.lower() == b"bearer" else None
        if name is None:
            message = "a token is required; send Authorization: Bearer TOKEN"
            raise HttpError(HTTPStatus.UNAUTHORIZED, "unauthorized", message, ((b"WWW-Authenticate", b"Bearer"),))
        return name

    def _check_host(self, request: WebRequest) -> None:
        host = single_header(request, b"Host")
        if host is None or not host:
            return  # Browsers always send it.
        if self._any_name_off_loopback and not _is_loopback(getattr(request.getHost(), "host", "")):
            return
        found = _HOST.fullmatch(host)
        name = "" if found is None else found[1].decode("latin-1").lower().removesuffix(".")
        if name not in self._hosts and not _is_address(name):
            message = "this host name is not allowed; use the address of the site, or allow the name with --host"
            raise HttpError(HTTPStatus.MISDIRECTED_REQUEST, "wrong-host", message)

    def _check_origin(self, request: WebRequest, page: bool) -> None:
        origin = single_header(request, b"Origin")
        if origin is None:
            # Following a link to a page is harmless. Requests that a page sends by itself are not.
            site = single_header(request, b"Sec-Fetch-Site")
            if site in (None, b"none", b"same-origin"):
                return
            if page and single_header(request, b"Sec-Fetch-Mode") == b"navigate":
                return
        elif origin == self._origin:
            return
        else:
            host = single_header(request, b"Host") or b""
            scheme, _, name = origin.lower().partition(b"://")
            if scheme in (b"http", b"https") and name == host.lower():
                return
        raise HttpError(HTTPStatus.FORBIDDEN, "cross-origin", "requests from pages of other sites are not allowed")


@lru_cache(maxsize=256)
def _is_address(name: str) -> bool:
    try:
        if name.startswith("["):
            IPv6Address(name[1:-1])
        else:
            ip_address(name)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=256)
def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return True  # For example, a Unix socket.
