"""Connections of clients to a backbone: binding, joining, and the base of the services."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.errors import FyrehoseError, NotConnected, OperationalError
from fyrehose_twisted.fyrehose.protocol import ClientProtocol
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS
from fyrehose_twisted.net.addresses import resolve_host_port
from fyrehose_twisted.net.datagram_protocol import DatagramNodeProtocol
from fyrehose_twisted.net.udp import KERNEL_BUFFER, DatagramPort, source_address_for
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
    """Bind ``protocol`` to a port and start to send KEEPALIVEs to ``backbone``, ``HOST:PORT``.

    :param interface: local IPv4 address; by default the one from which the backbone is reached.
    :raises ConfigurationError: if ``backbone`` is not ``HOST:PORT``.
    :raises OperationalError: if the name has no IPv4 address.
    """
    protocol.reactor = reactor
    protocol.backbone = await resolve_host_port(reactor, backbone)
    try:
        if interface is None:
            interface = source_address_for(protocol.backbone)
    except OSError as error:
        raise NotConnected(f"there is no route to the backbone {backbone}: {error.strerror}") from error
    datagram_port = DatagramPort(port, protocol, interface, reactor)
    try:
        datagram_port.bind()
    except CannotListenError as error:
        raise OperationalError(f"cannot listen on {interface}:{port}: {_error_text(error.socketError)}") from error
    if protocol.config.secret is not None and protocol.config.address == ANY_ADDRESS:
        # A token is bound to an address, so with a secret the address must be explicit.
        bound = datagram_port.getHost()
        protocol.config = replace(protocol.config, address=(bound.host, bound.port))
    warn_if_buffer_small(datagram_port)
    datagram_port.start()


async def join(
    reactor: Any, protocol: ClientT, backbone: str = DEFAULT_BACKBONE, *, port: int = 0, timeout: float = 10.0
) -> ClientT:
    """Connect ``protocol`` to a backbone. Return it after the first answer.

    :param backbone: ``HOST:PORT``.
    :param port: local UDP port; 0 for any that is free.
    :param timeout: seconds to wait for the first answer.
    :raises ConfigurationError: if ``backbone`` is not ``HOST:PORT``.
    :raises NotConnected: if the backbone does not answer in time, does not admit us, or cannot be reached.
    :raises OperationalError: if the name has no IPv4 address, or ``port`` cannot be bound.
    """
    await bind_client(reactor, protocol, backbone, port=port)
    connected: Deferred[None] = protocol.connected_first
    connected.addTimeout(timeout, reactor)
    try:
        await connected
    except DeferredTimeout:
        await protocol.leave()
        secret = "does it need a secret" if protocol.config.secret is None else "is the secret the same there"
        raise NotConnected(
            f"backbone {backbone} did not answer within {timeout:g} s;"
            f" is it running, {secret}, and does it admit this address?"
        ) from None
    except CancelledError:
        await protocol.leave()
        raise
    return protocol


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
