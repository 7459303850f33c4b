from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, Membership, RequestVote, RequestVoteReply
from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import LeadershipChanged, TakenOver
from fyrehose_twisted.fyrehose.node.backbone.backbone import BackboneState
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart
from fyrehose_twisted.fyrehose.node.member.config import MemberConfig
from fyrehose_twisted.fyrehose.node.member.member import BackboneMember
from fyrehose_twisted.fyrehose.node.member.persistent_state import (
    MAX_LOG_ENTRIES,
    GroupState,
    MemberCheckpoint,
    MemberState,
    decode_group,
    encode_group,
)
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.member_messages import NumberBounds, Seam
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Deliver, Flags, Head, Keepalive, Leader, Push
from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.network_core import LinkOverride

CLIENT: Address = ("10.0.1.1", 4000)
PUSH_INTERVAL = 0.01


class RawClient:
    """Client that follows the leader and records what it is sent."""

    def __init__(self, members: Sequence[Address], now: float) -> None:
        self.delivered: dict[int, bytes] = {}
        self.answers = True
        """Whether it answers a new leader."""
        self.arrivals: list[tuple[float, int]] = []
        self._tokens = {member: bytes([index]) * 16 for index, member in enumerate(members)}
        self._term, self._leader, self._count = 0, ANY_ADDRESS, 0
        self._keepalive_at = self._push_at = now
        self._effects: list[Send] = []

    def receive_batch(self, batch: Any, now: float) -> None:
        for run in batch.runs:
            for datagram in batch.datagrams(run):
                packet = decode(datagram)
                if isinstance(packet, Deliver):
                    assert self.delivered.setdefault(packet.sequence, packet.data) == packet.data
                    self.arrivals.append((now, packet.sequence))
                elif isinstance(packet, Leader):
                    if packet.term >= self._term and packet.leader != ANY_ADDRESS:
                        self._term, self._leader = packet.term, packet.leader
                    if packet.asks_head and self.answers:
                        head = Head(packet.token, packet.term, max(self.delivered, default=0))
                        self._effects.append(Send([encode(head)], (run.peer,)))

    def tick(self, now: float) -> None:
        if now >= self._keepalive_at:
            self._keepalive_at = now + 1.0
            for member, token in self._tokens.items():
                self._effects.append(Send([encode(Keepalive(CLIENT, Flags.EXTENSIONS, token))], (member,)))
        if now >= self._push_at:
            self._push_at = now + PUSH_INTERVAL
            if self._leader != ANY_ADDRESS:
                self._effects.append(Send([encode(Push(b"%d" % self._count))], (self._leader,)))
                self._count += 1

    def next_deadline(self) -> float:
        return min(self._keepalive_at, self._push_at)

    def drain(self) -> Outputs:
        effects, self._effects = self._effects, []
        return Outputs(None, effects, [])


class Members:
    """Members of a group on a simulated network, and one client."""

    def __init__(
        self,
        count: int = 3,
        *,
        names: str = "abcde",
        witnesses: str = "",
        bootstrap: str = "a",
        bounds: Mapping[str, int] | None = None,
    ) -> None:
        self.network = Network(1, Link(delay=0.0005))
        self.addresses: list[Address] = [(f"10.0.0.{index + 1}", 2323) for index in range(count)]
        self.states: dict[str, MemberState] = {}
        self.events: list[tuple[str, object]] = []
        self.hosts: dict[str, Host] = {}
        self._rng = Random(1)
        for index, (name, address) in enumerate(zip(names, self.addresses, strict=False)):
            bound = 0 if bounds is None else bounds.get(name, 0)
            self._add("abcde"[index], name, address, name in witnesses, name in bootstrap, bound)
        self._client_host = self.network.add("client", CLIENT, lambda boot: RawClient(self.addresses, boot.now))

    def _add(self, host_name: str, name: str, address: Address, witness: bool, bootstrap: bool, bound: int) -> None:
        def start(boot: Boot) -> BackboneMember:
            config = MemberConfig(
                name=name,
                stream="ticks",
                peers=tuple(one for one in self.addresses if one != address),
                client_address=address,
                peer_address=address,
                bootstrap=bootstrap,
                witness=witness,
            )
            return BackboneMember(
                BackboneConfig(),
                RandomForward(Random(1)),
                BackboneStart(last=bound, bound=bound),
                config,
                self.states.get(host_name),
                Random(self._rng.getrandbits(64)),
                now=boot.now,
            )

        def persist(checkpoint: MemberCheckpoint) -> None:
            if checkpoint.member is not None:
                self.states[host_name] = checkpoint.member

        host = self.hosts[host_name] = self.network.add(host_name, address, start)
        host.on_persist = persist
        host.on_event = lambda event: self.events.append((host_name, event))

    def start(self, names: str = "abcde") -> RawClient:
        for name, host in self.hosts.items():
            if name in names:
                host.start()
        self._client_host.start()
        self.network.run(2.0)
        return self.client

    @property
    def client(self) -> RawClient:
        client = self._client_host.node
        assert isinstance(client, RawClient)
        return client

    def node(self, name: str) -> BackboneMember:
        node = self.hosts[name].node
        assert isinstance(node, BackboneMember)
        return node

    @property
    def leader(self) -> str:
        (name,) = (name for name, host in self.hosts.items() if host.running and host.node.leads)
        return name

    def cut(self, side: Sequence[Address], other: Sequence[Address]) -> list[LinkOverride]:
        """Cut the links between two sides, in both directions."""
        return [self.network.override_links(*sides, up=False) for sides in ((side, other), (other, side))]

    def extend_bound(self, name: str, times: int = 1) -> None:
        """Let a leader propose higher bounds, as if it had given numbers."""
        for _ in range(times):
            node = self.node(name)
            node.backbone.sequencer.bound += 1
            self.hosts[name].perform(lambda node, now: None)
            self.network.run(0.01)

    def pause_seen_by_client(self, since: float) -> float:
        times = [at for at, _ in self.client.arrivals if at >= since - 1]
        return max(after - before for before, after in pairwise(times))


@pytest.fixture
def members() -> Members:
    return Members()


def test_members_bootstrap_one_group_and_one_of_them_numbers(members: Members) -> None:
    client = members.start()
    assert members.leader == "a"
    assert [sequence for _, sequence in client.arrivals] == list(range(1, len(client.arrivals) + 1))
    status = members.node("b").status(members.network.now)
    assert (status.leader, status.leads, status.state, status.quorum) == ("a", False, "standby", 2)
    assert [(one.name, one.connected, one.votes) for one in status.members] == [(name, True, True) for name in "abc"]


def test_no_group_is_bootstrapped_while_a_member_is_away(members: Members) -> None:
    members.start("ab")
    assert members.client.delivered == {}
    members.hosts["c"].start()
    members.network.run(1.0)
    assert members.client.delivered


def test_only_the_first_of_several_bootstraps() -> None:
    members = Members(bootstrap="bc")
    members.start()
    assert members.leader == "b"


def test_members_that_were_restarted_before_there_was_a_group_found_one(members: Members) -> None:
    members.start("ab")
    for name in "ab":
        members.hosts[name].stop(CrashMode.KILLED, "killed")
        members.hosts[name].start()
    assert members.states["a"], "its incarnation is stored"
    members.hosts["c"].start()
    members.network.run(2.0)
    assert members.leader == "a"


@pytest.mark.parametrize("host", ["a", "c"])
def test_numbers_of_a_stream_without_a_group_are_not_given_again(host: str) -> None:
    members = Members(bounds={host: 5_000})
    client = members.start()
    assert min(client.delivered) == 5_001


def test_two_members_of_one_name_bootstrap_no_group() -> None:
    members = Members(names="aab")
    assert members.start().delivered == {}


def test_leader_that_was_stopped_before_the_system_call_sends_nothing(members: Members) -> None:
    members.start()
    node, now = members.node("a"), members.network.now
    node.receive_batch(Batch.pack([(encode(Push(b"late")), CLIENT)]), now)
    node.drain()
    assert node.may_send(now)
    assert not node.may_send(now + 0.8)


def test_member_that_handed_over_stays_to_repair(members: Members) -> None:
    members.start()
    node = members.node("a")
    assert not node.may_stop
    members.hosts["a"].perform(lambda one, now: one.prepare_to_stop(now))
    members.network.run(0.3)
    assert not node.leads
    assert not node.may_stop
    members.network.run(0.6)
    assert node.may_stop


@pytest.mark.parametrize(("fault", "longest"), [("kill", 0.1), ("pause", 1.5), ("hand over", 0.05)])
def test_another_member_takes_over(members: Members, fault: str, longest: float) -> None:
    client = members.start()
    old, at = members.leader, members.network.now
    last = max(client.delivered)
    match fault:
        case "kill":
            members.hosts[old].stop(CrashMode.KILLED)
        case "pause":
            members.hosts[old].pause()
        case _:
            members.hosts[old].perform(lambda node, now: node.transfer(None, now))
    members.network.run(3.0)
    assert members.leader != old
    assert max(client.delivered) > last + 10
    assert members.pause_seen_by_client(at) < longest


def test_transfer_leaves_no_hole(members: Members) -> None:
    client = members.start()
    members.hosts["a"].perform(lambda node, now: node.transfer("c", now))
    members.network.run(1.0)
    assert members.leader == "c"
    assert sorted(client.delivered) == list(range(1, len(client.delivered) + 1))


def test_leader_that_wakes_up_gives_no_number(members: Members) -> None:
    client = members.start()
    members.hosts["a"].pause()
    members.network.run(3.0)
    numbered = members.node("a").backbone.counters.published
    members.hosts["a"].resume()
    members.network.run(1.0)
    assert members.node("a").backbone.counters.published == numbered
    assert not members.node("a").leads
    assert client.delivered


def test_leader_cut_off_from_the_others_stops_with_its_lease(members: Members) -> None:
    members.start()
    members.cut([members.addresses[0], CLIENT], members.addresses[1:])
    members.network.run(0.9)
    numbered = members.node("a").backbone.counters.published
    members.network.run(1.0)
    assert members.node("a").backbone.counters.published == numbered


def test_restart_of_all_members_goes_on_above_the_bound(members: Members) -> None:
    client = members.start()
    last = max(client.delivered)
    for host in members.hosts.values():
        host.stop(CrashMode.POWER)
    for host in members.hosts.values():
        host.start()
    members.network.run(5.0)
    later = [number for number in client.delivered if number > last]
    assert later
    assert min(later) > members.states["a"].snapshot.index


def test_transfer_to_a_member_that_cannot_lead_is_refused(members: Members) -> None:
    members.start()
    now = members.network.now
    with pytest.raises(OperationalError, match="nobody cannot lead next; connected members that can: b, c"):
        members.node("a").transfer("nobody", now)
    with pytest.raises(OperationalError, match="b cannot hand over: a leads"):
        members.node("b").transfer(None, now)


def test_member_that_is_still_taking_over_does_not_hand_over(members: Members) -> None:
    members.start()
    node = members.node("a")
    node.backbone.stand_by()
    node.backbone.lead(20_001, members.network.now)
    with pytest.raises(OperationalError, match="a cannot hand over: it is taking over itself; try again"):
        node.transfer(None, members.network.now)


def test_transfer_that_fails_ends_the_term(members: Members) -> None:
    client = members.start()
    node = members.node("a")
    term = node.raft.term
    cuts = members.cut([members.addresses[0]], members.addresses[1:])
    members.hosts["a"].perform(lambda one, now: one.transfer("b", now))
    members.network.run(1.5)
    assert not node.leads
    for cut in cuts:
        members.network.remove_override(cut)
    members.network.run(3.0)
    assert members.node(members.leader).raft.term > term
    assert client.delivered


def test_two_members_and_a_witness_survive_the_death_of_one() -> None:
    members = Members(witnesses="c")
    client = members.start()
    last = max(client.delivered)
    members.hosts["a"].stop(CrashMode.KILLED)
    members.network.run(2.0)
    assert members.leader == "b"
    assert max(client.delivered) > last


def test_witness_with_the_only_complete_log_hands_over() -> None:
    members = Members(witnesses="c")
    client = members.start()
    members.hosts["b"].stop(CrashMode.KILLED)
    members.network.run(1.0)
    bounds = members.node("a").leadership.bounds
    members.hosts["a"].perform(lambda node, now: setattr(node.backbone.sequencer, "bound", bounds.bound + 1))
    members.network.run(0.5)
    assert members.node("a").leadership.bounds.bound > bounds.bound
    members.hosts["a"].stop(CrashMode.KILLED)
    members.hosts["b"].start()
    last = max(client.delivered)
    members.network.run(6.0)
    assert members.leader == "b"
    assert max(client.delivered) > last


def test_member_that_lost_its_state_is_replaced(members: Members) -> None:
    members.start()
    members.hosts["c"].stop(CrashMode.KILLED)
    before = members.states.pop("c").member
    members.network.run(1.0)
    members.hosts["c"].start()
    members.network.run(2.0)
    voters = members.node("a").raft.members
    assert sorted(voter.name for voter in voters) == ["a", "b", "c"]
    assert before not in voters


def test_member_that_is_gone_for_good_is_removed_on_request(members: Members) -> None:
    members.start()
    now = members.network.now
    with pytest.raises(OperationalError, match="c is connected; stop it before it is removed"):
        members.node("a").remove("c", now)
    with pytest.raises(OperationalError, match="b does not lead, so it cannot remove c"):
        members.node("b").remove("c", now)
    with pytest.raises(OperationalError, match="x cannot be removed: it is not another member of the group"):
        members.node("a").remove("x", now)
    members.hosts["c"].stop(CrashMode.KILLED)
    members.network.run(1.0)
    members.hosts["a"].perform(lambda node, now: node.remove("c", now))
    members.network.run(1.0)
    assert sorted(voter.name for voter in members.node("b").raft.members) == ["a", "b"]


def test_bound_of_an_earlier_term_grants_nothing(members: Members) -> None:
    members.start()
    node, now = members.node("a"), members.network.now
    bound = node.authority.bound
    node.leadership.committed(LogEntry(node.raft.term - 1, EntryKind.DATA, NumberBounds(10**6, 0)), now)
    assert node.authority.bound == bound
    node.transfer(None, now)
    node.leadership.committed(LogEntry(node.raft.term, EntryKind.DATA, NumberBounds(10**6, 0)), now)
    assert node.authority.bound == 0


def test_member_that_restarts_votes_for_nobody_at_first(members: Members) -> None:
    members.start()
    members.hosts["b"].stop(CrashMode.KILLED)
    members.hosts["b"].start()
    raft, now = members.node("b").raft, members.network.now
    other = next(voter for voter in raft.members if voter.name == "c")
    for delay, granted in ((0.89, False), (0.91, True)):
        raft.outbox.clear()
        raft.request_vote_received(RequestVote(raft.term + 1, 10**6, 10**6, trial=True), other, now + delay)
        assert [reply.granted for _, reply in raft.outbox if isinstance(reply, RequestVoteReply)] == [granted]


def test_member_that_could_not_stop_another_group_numbers_nothing() -> None:
    members = Members(count=5)
    members.start()
    node = members.node("a")
    node.raft.membership = Membership(((node.raft.me, node.config.data),))
    known = node.raft.log.last_index
    node.backbone.sequencer.bound += 1
    node.tick(members.network.now)
    assert EntryKind.DATA not in [entry.kind for entry in node.raft.log.entries_from(known + 1)]


@pytest.mark.parametrize(("answers", "shortest", "longest"), [(True, 0.0, 0.15), (False, 0.85, 1.2)])
def test_leader_that_may_live_is_waited_for_unless_all_clients_left_it(
    members: Members, answers: bool, shortest: float, longest: float
) -> None:
    client = members.start()
    client.answers, at = answers, members.network.now
    members.hosts["a"].stop(CrashMode.KILLED)
    members.network.run(3.0)
    assert shortest <= members.pause_seen_by_client(at) < longest


def test_death_of_an_earlier_leader_is_forgotten(members: Members) -> None:
    client = members.start()
    members.hosts["a"].stop(CrashMode.KILLED)
    members.network.run(3.0)
    client.answers, at, old = False, members.network.now, members.leader
    members.hosts[old].perform(lambda node, now: node.transfer(None, now))
    members.network.run(2.0)
    assert members.leader != old
    assert members.pause_seen_by_client(at) < 0.3


def test_log_tells_what_was_given(members: Members) -> None:
    client = members.start()
    given = len(client.delivered)
    members.extend_bound("a")
    assert members.node("b").leadership.bounds.given >= given


def test_member_that_missed_much_gets_a_snapshot(members: Members) -> None:
    members.start()
    members.hosts["c"].stop(CrashMode.KILLED)
    members.extend_bound("a", 2 * MAX_LOG_ENTRIES)
    assert members.states["a"].snapshot.index > 0
    assert len(members.states["a"].entries) <= MAX_LOG_ENTRIES
    members.hosts["c"].start()
    members.network.run(1.0)
    assert members.node("c").leadership.bounds == members.node("a").leadership.bounds
    assert members.node("c").raft.members == members.node("a").raft.members


def test_leader_of_another_term_begins_anew(members: Members) -> None:
    members.start()
    node = members.node("a")
    node.raft.term += 1
    node.tick(members.network.now)
    assert node.backbone.state is BackboneState.STANDBY
    assert node.authority.bound == 0


def test_events_tell_who_leads(members: Members) -> None:
    members.start()
    assert ("a", LeadershipChanged(1, "a", True)) in members.events
    assert ("b", LeadershipChanged(1, "a", False)) in members.events
    assert any(name == "a" and isinstance(event, TakenOver) for name, event in members.events)


def test_snapshot_of_a_group_survives_encoding() -> None:
    members = Members()
    members.start()
    state = GroupState(NumberBounds(9, 4, 7, True, (Seam(1, 3),)), members.node("a").raft.membership)
    assert decode_group(encode_group(state)) == state
    with pytest.raises(ValueError, match="a snapshot of 3 bytes is damaged"):
        decode_group(b"\x01\x02\x03")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "must have 1 to 64 bytes"),
        ({"peers": ()}, "0 peers given; a group has 2 to 7 members"),
        ({"lease": 0.9}, "must be shorter than the 0.9 s"),
    ],
)
def test_configuration_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "name": "a",
        "stream": "ticks",
        "peers": (("192.0.2.2", 1),),
        "client_address": CLIENT,
        "peer_address": CLIENT,
    }
    MemberConfig(**good)
    with pytest.raises(ConfigurationError, match=message):
        MemberConfig(**{**good, **changes})
