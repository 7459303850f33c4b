"""Simulated hosts of the members of a group of backbones."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import ServedClient
from fyrehose_twisted.fyrehose.node.backbone.backbone import BackboneState
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import SequenceCheckpoint
from fyrehose_twisted.fyrehose.node.member.config import MemberConfig
from fyrehose_twisted.fyrehose.node.member.member import BackboneMember
from fyrehose_twisted.fyrehose.node.member.persistent_state import MemberCheckpoint, MemberState
from fyrehose_twisted.fyrehose.simulation.participants import BackboneFiles, Participant
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network import Network

STREAM = "simulated"


class MemberHost:
    """Host of one member. Clients and the other members reach it at the same address.

    :param checkpoint: stored checkpoint of a backbone without a group that ran here before.
    :ivar state: stored state of the member, which survives every crash but the loss of the disk.
    """

    def __init__(
        self,
        network: Network,
        config: BackboneConfig,
        member: MemberConfig,
        rng: Random,
        *,
        checkpoint: SequenceCheckpoint | None = None,
        start_delay: float = 0.0,
    ) -> None:
        self.config = config
        self.member_config = member
        self.state: MemberState | None = None
        self._rng = rng
        self._files = BackboneFiles(checkpoint)
        self.host: Host = network.add(member.name, member.client_address, self._start, start_delay=start_delay)
        self.host.on_persist = self._persist

    @property
    def name(self) -> str:
        """Name of the host and of its member."""
        return self.host.name

    @property
    def node(self) -> BackboneMember:
        """Running member, or the last one."""
        node = self.host.node
        assert isinstance(node, BackboneMember)
        return node

    @property
    def serves(self) -> bool:
        """Whether this member may number messages now."""
        if not self.host.running:
            return False
        node = self.node
        serving = node.leads and node.backbone.state is BackboneState.SERVING
        return serving and node.authority.room(node.backbone.sequencer.last, self.host.now) > 0

    def client_at(self, address: Address) -> ServedClient | None:
        """Return the client that this member serves at ``address``, or ``None``."""
        return self.node.backbone._client_table.get(address)

    def lose_disk(self, until_restart: float) -> None:
        """Crash without leaving any state, and start with an empty disk after ``until_restart`` seconds."""
        if self.host.stop(CrashMode.DISK):
            self.host.network.call_in(until_restart, self.host.start)

    def _start(self, boot: Boot) -> BackboneMember:
        if boot.last_crash is CrashMode.DISK:
            self.state = None
        address = self.host.address
        return BackboneMember(
            self.config,
            RandomForward(Random(self._rng.getrandbits(64))),
            self._files.start(boot),
            self.member_config,
            self.state,
            Random(self._rng.getrandbits(64)),
            own_address=lambda peer: address,
            is_own=lambda candidate: candidate == address,
            now=boot.now,
        )

    def _persist(self, checkpoint: MemberCheckpoint) -> None:
        if checkpoint.sequence is not None:
            self._files.persist(checkpoint.sequence)
        if checkpoint.member is not None:
            self.state = checkpoint.member


class Group:
    """Network, members and clients of a run with a group of backbones."""

    def __init__(self, network: Network, members: Sequence[MemberHost], clients: list[Participant]) -> None:
        self.network = network
        self.members = members
        self.clients = clients
        self._by_host = {member.host: member for member in members}

    def is_backbone(self, host: Host) -> bool:
        """See :class:`~fyrehose_twisted.fyrehose.simulation.invariants.delivery.ClientsOfRun`."""
        return host in self._by_host

    def member_of(self, host: Host) -> MemberHost | None:
        """Return the member on ``host``, or ``None``."""
        return self._by_host.get(host)

    @property
    def leader(self) -> MemberHost | None:
        """Member that may number messages now, or ``None``."""
        return next((member for member in self.members if member.serves), None)

    @property
    def is_whole(self) -> bool:
        """Whether all members run, vote and agree on the membership, so that one of them may lose its disk."""
        if not all(member.host.running for member in self.members):
            return False
        mine = {member.node.raft.me for member in self.members}
        return all(member.node.raft.members == mine for member in self.members)


def hand_over(member: BackboneMember, now: float) -> None:
    """Let an operator move the leadership to another member, if one can lead."""
    try:
        member.transfer(None, now)
    except OperationalError:
        return


def addresses_of(members: Sequence[MemberHost]) -> list[Address]:
    """Return the addresses at which clients reach ``members``."""
    return [one.host.address for one in members if not one.member_config.witness]
