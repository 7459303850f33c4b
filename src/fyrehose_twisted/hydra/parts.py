"""A node's parts: each has one subject, and all stand on what they share."""

from __future__ import annotations

from fyrehose_twisted.hydra.agreement import Agreement
from fyrehose_twisted.hydra.election import Election
from fyrehose_twisted.hydra.guests import Guests
from fyrehose_twisted.hydra.hearing import Hearing
from fyrehose_twisted.hydra.induction import Induction
from fyrehose_twisted.hydra.leading import Leading
from fyrehose_twisted.hydra.outsider import Outsider
from fyrehose_twisted.hydra.saying import Saying
from fyrehose_twisted.hydra.speaking import Speaking
from fyrehose_twisted.hydra.standing import Standing


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
