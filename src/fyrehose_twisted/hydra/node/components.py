"""A node's parts: each has one subject, and all stand on what they share."""

from __future__ import annotations

from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.induction import Induction
from fyrehose_twisted.hydra.node.joining import JoinProcedure
from fyrehose_twisted.hydra.node.leader.election import Election
from fyrehose_twisted.hydra.node.leader.leadership import Leadership
from fyrehose_twisted.hydra.node.legacy_peers import LegacyPeers
from fyrehose_twisted.hydra.node.registry_check import RegistryCheck
from fyrehose_twisted.hydra.node.relay.irc_writer import IrcWriter
from fyrehose_twisted.hydra.node.relay.received_lines import RecvRelay
from fyrehose_twisted.hydra.node.relay.send_queue import LineSendQueue


class HydraComponents:
    """The parts of one node."""

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.joining = JoinProcedure(context)
        self.induction = Induction(context)
        self.election = Election(context)
        self.leadership = Leadership(context)
        self.registry_check = RegistryCheck(context)
        self.recv_relay = RecvRelay(context)
        self.irc_writer = IrcWriter(context)
        self.send_queue = LineSendQueue(context)
        self.legacy_peers = LegacyPeers(context)
