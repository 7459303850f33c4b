"""Connections of clients to a backbone: binding, joining, and the base of the services."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import ConfigurationError, FyrehoseError, NotConnected, OperationalError
from fyrehose_twisted.fyrehose.config import MacPolicy
from fyrehose_twisted.fyrehose.protocol import ClientProtocol
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS
from fyrehose_twisted.host_addresses import host_version
from fyrehose_twisted.net.addresses import format_address, parse_host_ports, resolve_address
from fyrehose_twisted.net.datagram_protocol import DatagramNodeProtocol
from fyrehose_twisted.net.udp import ANY_HOST, KERNEL_BUFFER, DatagramPort, source_address_for
from fyrehose_twisted.process.shutdown import exit_with_failure

DEFAULT_PORT = 2323


DEFAULT_BACKBONE = f"127.0.0.1:{DEFAULT_PORT}"


ClientT = TypeVar("ClientT", bound=ClientProtocol)


_log = Logger()


def warn_if_buffer_small(port: DatagramPort) -> None:
    """Log a warning if the receive buffer is smaller than requested."""
    if port.receive_buffer < KERNEL_BUFFER:
        _log.warn(
            "the receive buffer has {given:,} bytes instead of {wanted:,}; bursts may be lost."
            " As root: sysctl -w net.core.rmem_max={wanted}",
            given=port.receive_buffer,
            wanted=KERNEL_BUFFER,
        )


async def bind_client(
    reactor: Any, protocol: ClientProtocol, backbone: str, *, port: int = 0, interface: str | None = None
) -> None:
    """Bind ``protocol`` to a port and start to send KEEPALIVEs to ``backbone``.

    :param backbone: ``HOST:PORT``; for backbones that take over from one another, one or more, separated by commas.
    :param interface: local IP address; by default the one from which the backbone is reached. ``::`` stands for all
        addresses of both families.
    :raises ConfigurationError: if ``backbone`` has another form.
    :raises OperationalError: if no name has an IP address.
    """
    protocol.reactor = reactor
    protocol.backbones = await _resolve(reactor, parse_host_ports(backbone))
    protocol.backbone = protocol.backbones[0]
    if interface is None:
        interface = _source_address(protocol.backbones, needs_one=protocol.config.secret is not None)
    datagram_port = DatagramPort(port, protocol, interface, reactor)
    try:
        datagram_port.bind()
    except CannotListenError as error:
        raise OperationalError(f"cannot listen on {interface}:{port}: {_error_text(error.socketError)}") from error
    if protocol.config.secret is not None and protocol.config.address == ANY_ADDRESS:
        # A token is bound to an address, so with a secret the address must be explicit.
        protocol.config = replace(protocol.config, address=_explicit_address(datagram_port, protocol.backbone))
    if not protocol.config.ip_versions:
        if protocol.config.journal:
            datagram_port.send_to_other_version()
        protocol.config = replace(protocol.config, ip_versions=datagram_port.ip_versions)
    warn_if_buffer_small(datagram_port)
    datagram_port.start()


async def join(
    reactor: Any, protocol: ClientT, backbone: str = DEFAULT_BACKBONE, *, port: int = 0, timeout: float = 10.0
) -> ClientT:
    """Connect ``protocol`` to a backbone. Return it after the first answer.

    :param backbone: ``HOST:PORT``; for backbones that take over from one another, one or more, separated by commas.
    :param port: local UDP port; 0 for any that is free.
    :param timeout: seconds to wait for the first answer.
    :raises ConfigurationError: if ``backbone`` has another form.
    :raises NotConnected: if the backbone does not answer in time, does not admit us, or cannot be reached.
    :raises OperationalError: if no name has an IP address, or ``port`` cannot be bound.
    """
    await bind_client(reactor, protocol, backbone, port=port)
    connected: Deferred[None] = protocol.connected_first
    connected.addTimeout(timeout, reactor)
    try:
        await connected
    except DeferredTimeout:
        await protocol.leave()
        node = protocol.node
        if protocol.config.mac is MacPolicy.REQUIRE and node is not None and node.drops.counts["mac_missing"]:
            raise NotConnected(
                f"the answers of backbone {backbone} have no MAC: it has no secret, or is of an older version; without"
                " --require-mac it is believed all the same"
            ) from None
        secret = "does it need a secret" if protocol.config.secret is None else "is the secret the same there"
        raise NotConnected(
            f"{_silence(backbone)} within {timeout:g} s; is it running, {secret}, and does it admit this address?"
        ) from None
    except CancelledError:
        await protocol.leave()
        raise
    return protocol


async def _resolve(reactor: Any, addresses: Sequence[Address]) -> Sequence[Address]:
    """Resolve host names. One that has no address does not matter if another backbone has one."""
    resolved: list[Address] = []
    problem: OperationalError | None = None
    for address in addresses:
        try:
            resolved.append(await resolve_address(reactor, address, is_usable=_has_route))
        except OperationalError as error:
            problem = error
            if len(addresses) > 1:
                _log.warn("backbone left out: {error}", error=error)
    if problem is not None and not resolved:
        raise problem
    return list(dict.fromkeys(resolved))


def _source_address(backbones: Sequence[Address], *, needs_one: bool) -> str:
    """Return the local address from which the backbones are reached; that of all interfaces if they differ.

    :param needs_one: whether the address is part of the packets.
    :raises ConfigurationError: if one is needed and they differ.
    :raises NotConnected: if there is no route to any backbone.
    """
    sources: list[str] = []
    problem: NotConnected | None = None
    for backbone in backbones:
        try:
            sources.append(source_address_for(backbone))
        except OSError as error:
            problem = NotConnected(f"there is no route to the backbone {format_address(backbone)}: {error.strerror}")
    if problem is not None and not sources:
        raise problem
    if len(set(sources)) == 1:
        return ANY_HOST if "%" in sources[0] else sources[0]  # Twisted cannot bind link-local addresses.
    if needs_one:
        raise ConfigurationError(
            f"the backbones are reached from different local addresses ({', '.join(dict.fromkeys(sources))}),"
            " but a secret requires one; give addresses of the backbones in one network"
        )
    return ANY_HOST if any(host_version(source) == 6 for source in sources) else ANY_ADDRESS[0]


def _has_route(address: Address) -> bool:
    try:
        source_address_for(address)
    except OSError:
        return False
    return True


def _explicit_address(port: DatagramPort, backbone: Address) -> Address:
    """Return the address at which the backbone reaches a port.

    :raises ConfigurationError: if no packet can carry it.
    """
    bound = port.getHost()
    host = source_address_for(backbone) if bound.host in (ANY_HOST, ANY_ADDRESS[0]) else bound.host
    if not can_be_packed((host, bound.port)):
        raise ConfigurationError(
            f"a secret requires an address that packets can carry, but the backbone {format_address(backbone)} is"
            f" reached from {host}, which means nothing to other hosts; use an address that is not link-local"
        )
    return host, bound.port


def _silence(backbone: str) -> str:
    return f"none of the backbones {backbone} answered" if "," in backbone else f"backbone {backbone} did not answer"


class DatagramService(Service):
    """Service that stops the process with exit status 1 if its protocol fails."""

    log = Logger()

    def __init__(self, reactor: Any = None) -> None:
        if reactor is None:
            from twisted.internet import reactor
        self.reactor = reactor

    def watch(self, protocol: DatagramNodeProtocol) -> None:
        """Stop the process if ``protocol`` fails. The protocol logs the error itself."""
        protocol.stopped.addErrback(lambda failure: self._stop_process())

    def fail(self, failure: Failure) -> None:
        """Log the error and stop the process."""
        if isinstance(failure.value, FyrehoseError):
            self.log.critical("stopping: {error}", error=failure.value)
        else:
            self.log.failure("stopping", failure)
        self._stop_process()

    def _stop_process(self) -> None:
        exit_with_failure(self.reactor)


def _error_text(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
