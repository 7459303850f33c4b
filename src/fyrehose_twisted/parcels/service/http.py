"""Optional web site of a node, which needs the ``web`` extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.web.site import wait_closed
from fyrehose_twisted.wording import pluralize

if TYPE_CHECKING:
    from fyrehose_twisted.parcels.web.config import WebConfig
    from fyrehose_twisted.web.tokens import Tokens

CALLBACK_FILE_NAME = "callbacks.json"
"""Name of the callback file, in the directory of the state file."""


class ExtraMissing(ConfigurationError):
    """A package of the ``web`` extra is not installed. The options themselves are valid."""


@contextmanager
def web_extra() -> Iterator[None]:
    """Import modules of :mod:`fyrehose_twisted.parcels.web` within this context.

    :raises ExtraMissing: if a required package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "treq").partition(".")[0]
        raise ExtraMissing(
            f"HTTP needs {package}, which is not installed: pip install 'fyrehose_twisted[web]'"
        ) from error


class HttpSite:
    """HTTP API and callbacks of a node.

    :param node: the node.
    :param tokens: tokens of the clients; ``None`` if none is required.
    :param config: a :class:`~fyrehose_twisted.parcels.web.config.WebConfig`.
    :param directory: directory that stores callbacks across restarts; ``None`` to store nothing.
    :ivar factory: protocol factory of the site.
    :raises ExtraMissing: if the ``web`` extra is not installed.
    """

    def __init__(
        self,
        node: IOrderedEvents,
        tokens: Tokens | None,
        config: WebConfig | None,
        directory: Path | None,
        reactor: Any,
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
        self.factory = site(node, reactor=reactor, tokens=tokens, callbacks=self._callbacks, config=config)
        self._reactor = reactor

    def replace_tokens(self, tokens: Tokens | None) -> list[str]:
        """Accept these tokens from now on, and return what changed, for the log."""
        self.factory.access.tokens = tokens
        return [] if tokens is None else [pluralize(len(tokens), "token")]

    def start(self) -> None:
        """Start deliveries to callbacks.

        :raises OperationalError: if the callback file cannot be read.
        """
        self._callbacks.start()

    async def stop(self) -> None:
        """Stop all streams and deliveries, and respond to pending requests."""
        self.factory.close()
        await wait_closed(self._reactor, lambda: self.factory.connections)
        await self._callbacks.stop()
