"""Configuration of the service of a parcels node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IReplicatedState
from fyrehose_twisted.net.connection import ConnectionLimits
from fyrehose_twisted.net.service_config import ServiceConfig, default_limits
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.service.storage import Storage

if TYPE_CHECKING:
    from fyrehose_twisted.parcels.web.config import WebConfig
    from fyrehose_twisted.web.tokens import Tokens

DEFAULT_PORT = 7878
DEFAULT_LISTEN = f"tcp:{DEFAULT_PORT}:interface=127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class ParcelsConfig(ServiceConfig, NodeConfig):
    """Configuration of a node with its ports, files and web site.

    It has the fields of :class:`~fyrehose_twisted.parcels.config.NodeConfig` and of
    :class:`~fyrehose_twisted.net.service_config.ServiceConfig`, and these:

    :ivar listen: server endpoint for other nodes and publishers, exactly one.
    :ivar advertise: address at which other nodes reach this node; a port of 0 stands for the one that it listens on.
    :ivar neighbours: nodes to contact first. Their hosts may be names.
    :ivar http: server endpoint of the web site; ``None`` for no web site.
    :ivar token: bearer token that all clients of the web site share.
    :ivar tokens: bearer tokens of the clients of the web site, instead of ``token``.
    :ivar metrics: server endpoint of a page of metrics without a token; ``None`` for none.
    :ivar web: further settings of the web site.
    :ivar storage: files of events and of the persistent state. Without it, nothing survives the process.
    :ivar state: the application's state, which the node keeps up to date.
    :ivar dial: client endpoint with ``{host}`` and ``{port}`` to dial other nodes; TCP by default.
    """

    listen: Sequence[str] = (DEFAULT_LISTEN,)
    http: str | None = None
    token: bytes | None = field(default=None, repr=False)
    tokens: Tokens | None = field(default=None, repr=False)
    metrics: str | None = None
    web: WebConfig | None = None
    storage: Storage | None = None
    state: IReplicatedState | None = field(default=None, repr=False)
    dial: str | None = None

    def __post_init__(self) -> None:
        NodeConfig.__post_init__(self)
        self.check()
        if self.token is not None and self.tokens is not None:
            raise ConfigurationError("token and tokens exclude each other")
        if len(self.listen) != 1:
            raise ConfigurationError(f"a node listens on one endpoint, and not on {len(self.listen)}")

    def _default_limits(self) -> ConnectionLimits:
        return default_limits(self.max_links)
