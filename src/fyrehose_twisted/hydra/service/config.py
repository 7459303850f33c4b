"""Configuration of the service of a hydra node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.config import NodeConfig
from fyrehose_twisted.hydra.irc.active import IrcConfig
from fyrehose_twisted.hydra.irc.channels import Channel
from fyrehose_twisted.hydra.service.storage import LineStorage
from fyrehose_twisted.hydra.transports.dialer import MAX_DIAL_TIMEOUT
from fyrehose_twisted.net.connection import ConnectionLimits
from fyrehose_twisted.net.service_config import ControlledServiceConfig, default_limits
from fyrehose_twisted.process.secret import check_secret

DEFAULT_PORT = 6174
DEFAULT_LISTEN = f"tcp:{DEFAULT_PORT}:interface=127.0.0.1"


@dataclass(frozen=True, slots=True)
class HydraSettings:
    """Settings of a running node that can be replaced.

    :ivar secret: secret that this node proves; ``None`` only for a node that had none from the start.
    :ivar other_secrets: secrets that other nodes may prove instead.
    :ivar channels: channels of the leader.
    :ivar bots: bots that the node runs; ``None`` to keep them.
    """

    secret: bytes | None = field(default=None, repr=False)
    other_secrets: tuple[bytes, ...] = field(default=(), repr=False)
    channels: tuple[Channel, ...] = ()
    bots: tuple[Any, ...] | None = None


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
    :ivar other_secrets: secrets that other nodes may prove instead of ``secret``, while it is replaced on one node
        after the other.
    :ivar guardian: start a process that announces the end of this one to the network if it is killed.
    """

    listen: Sequence[str] = (DEFAULT_LISTEN,)
    links: Sequence[str] = ()
    irc: IrcConfig | None = None
    sync: bool = False
    storage: LineStorage | None = None
    guardian: bool = True
    other_secrets: Sequence[bytes] = field(default=(), repr=False)
    quick_lease: bool = True

    def __post_init__(self, found: bool | None) -> None:
        NodeConfig.__post_init__(self, found)
        self.check()
        self._make_tuple("links")
        self._make_tuple("other_secrets")
        for secret in self.other_secrets:
            check_secret(secret)
        if self.other_secrets and self.secret is None:
            raise ConfigurationError("other secrets require a secret of this node")

    @property
    def settings(self) -> HydraSettings:
        """Settings that :meth:`~fyrehose_twisted.hydra.service.service.HydraService.reconfigure` may replace."""
        return HydraSettings(self.secret, tuple(self.other_secrets), () if self.irc is None else self.irc.channels)

    def _default_limits(self) -> ConnectionLimits:
        return default_limits(self.max_links, dial_timeout=MAX_DIAL_TIMEOUT)
