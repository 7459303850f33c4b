"""Configuration of the service of a hydra node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fyrehose_twisted.hydra.config import NodeConfig
from fyrehose_twisted.hydra.irc.active import IrcConfig
from fyrehose_twisted.hydra.service.storage import LineStorage
from fyrehose_twisted.hydra.transports.dialer import MAX_DIAL_TIMEOUT
from fyrehose_twisted.net.connection import ConnectionLimits
from fyrehose_twisted.net.service_config import ControlledServiceConfig, default_limits

DEFAULT_PORT = 6174
DEFAULT_LISTEN = f"tcp:{DEFAULT_PORT}:interface=127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class HydraConfig(ControlledServiceConfig, NodeConfig):
    """Configuration of a node with its ports, files, links and IRC connection.

    It has the fields of :class:`~fyrehose_twisted.hydra.config.NodeConfig` and of
    :class:`~fyrehose_twisted.net.service_config.ControlledServiceConfig`, and these:

    :ivar listen: server endpoints for links from other nodes, or ``udp:PORT:interface=ADDRESS``.
    :ivar links: URLs of the links that the node keeps open, see :mod:`~fyrehose_twisted.hydra.transports.link_url`.
        They replace ``targets``.
    :ivar irc: IRC servers, nick and channels of the leader. A node without it cannot remain leader.
    :ivar state: file with the promises of the node. A node without it does not vote for one promise period after each
        start.
    :ivar sync: sync the state file, so that it survives a power failure.
    :ivar storage: journal for the lines from IRC; ``None`` for none.
    :ivar guardian: start a process that announces the end of this one to the network if it is killed.
    """

    listen: Sequence[str] = (DEFAULT_LISTEN,)
    links: Sequence[str] = ()
    irc: IrcConfig | None = None
    sync: bool = False
    storage: LineStorage | None = None
    guardian: bool = True
    quick_lease: bool = True

    def __post_init__(self, found: bool | None) -> None:
        NodeConfig.__post_init__(self, found)
        self.check()
        self._make_tuple("links")

    def _default_limits(self) -> ConnectionLimits:
        return default_limits(self.max_links, dial_timeout=MAX_DIAL_TIMEOUT)
