"""A node's web site, which is there only where the ``web`` extra is installed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.logger import Logger

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.net.dialling import show_place
from fyrehose_twisted.net.link import describe

_from_string: Any = serverFromString
"""Twisted's, which is not annotated."""

CALLBACKS = "callbacks.json"
"""Name of the file with the callbacks, beside the promises."""


def web_module(name: str) -> Any:
    """Return a module of :mod:`fyrehose_twisted.parcels.web`.

    :raises ConfigurationError: if something that it needs is not installed.
    """
    try:
        return import_module(f"fyrehose_twisted.parcels.web.{name}")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"HTTP needs {error.name}, which is not installed: pip install 'fyrehose_twisted[web]'"
        ) from error


def endpoint_of(reactor: Any, option: str, description: str) -> IStreamServerEndpoint:
    """Return a server endpoint. :raises ConfigurationError: if ``description`` is none."""
    try:
        endpoint: IStreamServerEndpoint = _from_string(reactor, description)
    except Exception as error:  # What parsers of endpoints raise is their own affair.
        raise ConfigurationError(f"--{option} {description!r} is not an endpoint such as tcp:7878 ({error})") from error
    return endpoint


class WebSite:
    """Serves the events of a node over HTTP.

    :param node: the node.
    :param listen: server endpoint.
    :param token: what clients have to know.
    :param config: a :class:`~fyrehose_twisted.parcels.web.config.WebConfig`.
    :param directory: where callbacks outlive the process; ``None`` for nowhere.
    :raises ConfigurationError: if the ``web`` extra is not installed, or ``listen`` is no endpoint.
    """

    log = Logger()

    def __init__(
        self, node: IOrderedEvents, listen: str, token: bytes | None, config: Any, directory: Path | None, reactor: Any
    ) -> None:
        site, sending, settings = web_module("site"), web_module("sending"), web_module("config")
        callbacks, file = web_module("callbacks"), web_module("callback_file")
        config = settings.WebConfig() if config is None else config
        self._endpoint = endpoint_of(reactor, "http", listen)
        self._description = listen
        self._directory = directory
        self._callbacks = callbacks.Callbacks(
            node,
            sending.TreqSender(config, reactor),
            config,
            reactor,
            file=None if directory is None else file.CallbackFile(directory / CALLBACKS),
        )
        self._site = site.site(node, reactor=reactor, token=token, callbacks=self._callbacks, config=config)
        self._port: Deferred[IListeningPort] | None = None
        self._started = False

    def bind(self) -> None:
        """Listen, if it does not yet."""
        if self._port is None:
            self._port = maybeDeferred(self._endpoint.listen, self._site)
            self._port.addErrback(self._not_bound)

    async def start(self) -> None:
        """Begin to deliver to callbacks.

        :raises OperationalError: if it could not listen, or the file with the callbacks cannot be read.
        """
        self.bind()
        assert self._port is not None
        port = await shared(self._port)
        self._callbacks.start()
        self._started = True
        host: Any = port.getHost()
        place = show_place((getattr(host, "host", str(host)), getattr(host, "port", 0)))
        self.log.info("serves HTTP at {place}", place=place)

    async def stop(self) -> None:
        """End all requests and deliveries."""
        port, self._port = self._port, None
        if port is not None and port.called:
            listening: Any = await shared(port, quietly=True)
            if listening is not None:
                await maybeDeferred(listening.stopListening)
        if self._started:
            self._started = False
            await self._callbacks.stop()

    def _not_bound(self, failure: Any) -> Any:
        reason = describe(getattr(failure.value, "socketError", failure.value))
        raise OperationalError(f"--http {self._description} cannot be listened on: {reason}")


def shared(source: Deferred[Any], *, quietly: bool = False) -> Deferred[Any]:
    """Return another Deferred for what ``source`` brings, which others wait for as well.

    :param quietly: with ``None`` where it failed.
    """
    result: Deferred[Any] = Deferred()

    def done(value: Any) -> Any:
        result.callback(value)
        return value

    def failed(failure: Any) -> Any:
        if quietly:
            result.callback(None)
        else:
            result.errback(failure)
        return failure

    source.addCallbacks(done, failed)
    return result
