"""Hydra: nodes elect a leader, which alone holds the connection to IRC, and relay its lines (document 002).

:class:`HydraService` runs a node, configured by a :class:`HydraConfig`; a :class:`Bot` answers lines. The layers below:
:mod:`~fyrehose_twisted.hydra.wire` has messages and codecs, :mod:`~fyrehose_twisted.hydra.node` the rules without I/O,
:mod:`~fyrehose_twisted.hydra.protocol` the Twisted protocol, :mod:`~fyrehose_twisted.hydra.irc` the IRC client,
:mod:`~fyrehose_twisted.hydra.transports` what carries links, :mod:`~fyrehose_twisted.hydra.service` what ``twistd``
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted._exports import exports

if TYPE_CHECKING:
    from fyrehose_twisted.hydra.config import LinkTarget as LinkTarget
    from fyrehose_twisted.hydra.config import NodeConfig as NodeConfig
    from fyrehose_twisted.hydra.config import OverlongPolicy as OverlongPolicy
    from fyrehose_twisted.hydra.config import Quorum as Quorum
    from fyrehose_twisted.hydra.config import Timers as Timers
    from fyrehose_twisted.hydra.events import Outcome as Outcome
    from fyrehose_twisted.hydra.events import Role as Role
    from fyrehose_twisted.hydra.irc.active import Channel as Channel
    from fyrehose_twisted.hydra.irc.active import IrcConfig as IrcConfig
    from fyrehose_twisted.hydra.irc.bots import Bot as Bot
    from fyrehose_twisted.hydra.irc.bots import IrcLine as IrcLine
    from fyrehose_twisted.hydra.irc.bots import StatefulBot as StatefulBot
    from fyrehose_twisted.hydra.irc.nick_service import NickServiceConfig as NickServiceConfig
    from fyrehose_twisted.hydra.protocol import HydraProtocol as HydraProtocol
    from fyrehose_twisted.hydra.service.config import HydraConfig as HydraConfig
    from fyrehose_twisted.hydra.service.service import HydraService as HydraService
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "HydraConfig": "service.config",
            "Bot": "irc.bots",
            "Channel": "irc.active",
            "HydraProtocol": "protocol",
            "HydraService": "service.service",
            "IrcConfig": "irc.active",
            "IrcLine": "irc.bots",
            "LinkTarget": "config",
            "NodeConfig": "config",
            "Outcome": "events",
            "OverlongPolicy": "config",
            "NickServiceConfig": "irc.nick_service",
            "Quorum": "config",
            "Role": "events",
            "StatefulBot": "irc.bots",
            "Timers": "config",
        },
    )
