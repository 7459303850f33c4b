"""A node's parts: each has one subject, and all stand on what they share."""

from __future__ import annotations

from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.induction import Induction
from fyrehose_twisted.hydra.node.joining import Outsider
from fyrehose_twisted.hydra.node.leader.election import Election
from fyrehose_twisted.hydra.node.leader.leadership import Leading
from fyrehose_twisted.hydra.node.legacy_peers import Guests
from fyrehose_twisted.hydra.node.registry_check import Agreement
from fyrehose_twisted.hydra.node.relay.irc_writer import Speaking
from fyrehose_twisted.hydra.node.relay.received_lines import Hearing
from fyrehose_twisted.hydra.node.relay.send_queue import Saying


class Parts:
    """The parts of one node."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.outsider = Outsider(standing)
        self.induction = Induction(standing)
        self.election = Election(standing)
        self.leading = Leading(standing)
        self.agreement = Agreement(standing)
        self.hearing = Hearing(standing)
        self.speaking = Speaking(standing)
        self.saying = Saying(standing)
        self.guests = Guests(standing)
