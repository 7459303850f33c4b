"""A node's web site, which is there only where the ``web`` extra is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.web.site import wait_closed

if TYPE_CHECKING:
    from fyrehose_twisted.parcels.web.config import WebConfig

CALLBACK_FILE_NAME = "callbacks.json"
"""Name of the file with the callbacks, beside the promises."""


class ExtraMissing(ConfigurationError):
    """A package of the ``web`` extra is not installed. The options are right as they are."""


@contextmanager
def web_extra() -> Iterator[None]:
    """Import modules of :mod:`fyrehose_twisted.parcels.web` within this context.

    :raises ExtraMissing: if something that they need is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "treq").partition(".")[0]
        raise ExtraMissing(
            f"HTTP needs {package}, which is not installed: pip install 'fyrehose_twisted[web]'"
        ) from error


class HttpSite:
    """Serves the events of a node over HTTP, and delivers them to callbacks.

    :param node: the node.
    :param token: what clients have to know.
    :param config: a :class:`~fyrehose_twisted.parcels.web.config.WebConfig`.
    :param directory: where callbacks outlive the process; ``None`` for nowhere.
    :ivar factory: makes the protocols of connections.
    :raises ExtraMissing: if the ``web`` extra is not installed.
    """

    def __init__(
        self, node: IOrderedEvents, token: bytes | None, config: WebConfig | None, directory: Path | None, reactor: Any
    ) -> None:
        with web_extra():
            from fyrehose_twisted.parcels.web.config import WebConfig
            from fyrehose_twisted.parcels.web.site import site
            from fyrehose_twisted.parcels.web.webhooks.file import CallbackFile
            from fyrehose_twisted.parcels.web.webhooks.http_sender import TreqSender
            from fyrehose_twisted.parcels.web.webhooks.registry import Callbacks
        config = WebConfig() if config is None else config
        self._callbacks = Callbacks(
            node,
            TreqSender(config, reactor),
            config,
            reactor,
            file=None if directory is None else CallbackFile(directory / CALLBACK_FILE_NAME),
        )
        self.factory = site(node, reactor=reactor, token=token, callbacks=self._callbacks, config=config)
        self._reactor = reactor

    def start(self) -> None:
        """Begin to deliver to callbacks.

        :raises OperationalError: if the file with the callbacks cannot be read.
        """
        self._callbacks.start()

    async def stop(self) -> None:
        """End all streams and deliveries, and answer what is under way."""
        self.factory.close()
        await wait_closed(self._reactor, lambda: self.factory.connections)
        await self._callbacks.stop()
